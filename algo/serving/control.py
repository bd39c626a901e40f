"""Authentication for vLLM's development endpoints, which accept any request, even a web page's.

A vLLM that is started here serves ``/v1/`` (except loading adapters), tokenizer and health without a token. All else
needs a header with the control token: random in each process that starts servers, or from the environment variable
``VLLM_CONTROL_TOKEN``, for a vLLM that you start and attach to.
The middleware runs in vLLM's API server, so this module only imports Starlette.
"""

import hmac
import os
import secrets
from functools import lru_cache

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

CONTROL_VARIABLE = "VLLM_CONTROL_TOKEN"
CONTROL_HEADER = "x-vllm-control"

_OPEN = frozenset({"/health", "/ping", "/version", "/tokenize", "/detokenize", "/tokenizer_info"})


@lru_cache
def control_token() -> str:
    """The control token of the servers that this process starts or attaches to."""
    return os.environ.get(CONTROL_VARIABLE, "").strip() or secrets.token_urlsafe(32)


def control_headers(started_here: bool) -> dict[str, str]:
    """Headers of a request. A random token is only sent to servers that were started here."""
    return {CONTROL_HEADER: control_token()} if started_here or os.environ.get(CONTROL_VARIABLE, "").strip() else {}


class ControlGuard:
    """Rejects requests without the token with status 403, unless the variable is unset."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._token = os.environ.get(CONTROL_VARIABLE, "").strip().encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or not self._token or _is_open(scope["path"]) or self._has_token(scope):
            await self._app(scope, receive, send)
        else:
            message = f"the control token of this server is required: set {CONTROL_VARIABLE} to it"
            await JSONResponse({"error": {"message": message}}, status_code=403)(scope, receive, send)

    def _has_token(self, scope: Scope) -> bool:
        shown = Headers(scope=scope).getlist(CONTROL_HEADER)
        return any(hmac.compare_digest(value.encode("latin-1"), self._token) for value in shown)


def _is_open(path: str) -> bool:
    return path in _OPEN or (path.startswith("/v1/") and "lora" not in path)
