"""Who may control a vLLM: its development endpoints obey whoever reaches them, a web page in a browser here included.

A vLLM that we start answers ``/v1/`` (without what loads adapters), tokenizer and health to everybody, and anything
else only to a request with a header that its starter knows: drawn anew for each process that starts servers, or taken
from the environment variable ``VLLM_CONTROL_TOKEN``, for a vLLM of one's own that is to be attached to.
Imports nothing but the standard library: vLLM runs the middleware in its API server.
"""

import hmac
import json
import os
import secrets
from functools import lru_cache

from algo.serving.version_header import Application, Receive, Scope, Send

CONTROL_VARIABLE = "VLLM_CONTROL_TOKEN"
CONTROL_HEADER = "x-vllm-control"

_OPEN = frozenset({"/health", "/ping", "/version", "/tokenize", "/detokenize", "/tokenizer_info"})


@lru_cache
def control_token() -> str:
    """The token of the servers that this process starts, and that it shows to those that it attaches to."""
    return os.environ.get(CONTROL_VARIABLE, "").strip() or secrets.token_urlsafe(32)


def control_headers(started_here: bool) -> dict[str, str]:
    """What a request carries. A token drawn here is of no use to servers that others started, and not shown to them."""
    return {CONTROL_HEADER: control_token()} if started_here or os.environ.get(CONTROL_VARIABLE, "").strip() else {}


class ControlGuard:
    """Refuses control to whoever does not know the token; without the variable it lets everything pass."""

    def __init__(self, app: Application) -> None:
        self._app = app
        self._token = os.environ.get(CONTROL_VARIABLE, "").strip().encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer 403."""
        if scope["type"] == "lifespan" or not self._token or _is_open(scope["path"]) or self._is_shown(scope):
            await self._app(scope, receive, send)
            return
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 403, "headers": headers})
        message = f"control needs the token that this server was started with: set {CONTROL_VARIABLE} to it"
        await send({"type": "http.response.body", "body": json.dumps({"error": {"message": message}}).encode()})

    def _is_shown(self, scope: Scope) -> bool:
        name = CONTROL_HEADER.encode()
        return any(key == name and hmac.compare_digest(value, self._token) for key, value in scope["headers"])


def _is_open(path: str) -> bool:
    return path in _OPEN or (path.startswith("/v1/") and "lora" not in path)
