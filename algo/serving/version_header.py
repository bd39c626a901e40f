"""Tells with every completion which version of the policy's weights sampled it: an ASGI middleware for vLLM.

vLLM takes it by its option ``--middleware algo.serving.version_header.PolicyVersionHeader`` and runs it in its API
server, so it imports nothing but the standard library. Weights are pushed with no reply under way, so a reply is of
one version.
"""

import json
import os
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

POLICY_VERSION_HEADER = "x-policy-version"
"""Of a completion: decimal number of the weights that sampled it. Runners read it."""

INITIAL_VERSION = "INITIAL_POLICY_VERSION"
"""Environment variable: the version that a vLLM starts with. Empty: its weights are yet to be pushed, and until then
completions are refused with status 503, which clients ask again."""

SET_VERSION_PATH = "/update_weight_version"
"""vLLM's own development endpoint; the body is ``{"new_version": "7"}``."""

COMPLETIONS_PATH = "/v1/completions"


class PolicyVersionHeader:
    """Adds ``x-policy-version`` to the answers of ``/v1/completions``: the version when the answer began."""

    def __init__(self, app: Application) -> None:
        self._app = app
        self._version = os.environ.get(INITIAL_VERSION, "0")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on unchanged; note a version that vLLM has accepted, tell it with completions."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif scope["path"] == SET_VERSION_PATH:
            await self._note_version(scope, receive, send)
        elif scope["path"] != COMPLETIONS_PATH:
            await self._app(scope, receive, send)
        elif self._version:
            await self._app(scope, receive, self._with_version(send))
        else:
            await _refuse(send)

    async def _note_version(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = bytearray()

        async def copying() -> Message:
            message = await receive()
            body.extend(message.get("body", b""))
            return message

        async def noting(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] == 200:
                self._version = str(json.loads(body)["new_version"])
            await send(message)

        await self._app(scope, copying, noting)

    def _with_version(self, send: Send) -> Send:
        async def telling(message: Message) -> None:
            if message["type"] == "http.response.start":
                header = (POLICY_VERSION_HEADER.encode(), self._version.encode())
                message = {**message, "headers": [*message.get("headers", ()), header]}
            await send(message)

        return telling


async def _refuse(send: Send) -> None:
    body = json.dumps({"error": {"message": "the weights of the policy are yet to be loaded; ask again"}}).encode()
    headers = [(b"content-type", b"application/json"), (b"retry-after", b"1")]
    await send({"type": "http.response.start", "status": 503, "headers": headers})
    await send({"type": "http.response.body", "body": body})
