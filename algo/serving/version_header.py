"""Adds to each completion the version of the policy's weights that sampled it: an ASGI middleware for vLLM.

vLLM takes it by ``--middleware algo.serving.version_header.PolicyVersionHeader`` and runs it in its API server, so
this module imports nothing but Starlette. Where weights are pushed with no reply under way, a reply has one version.
Where replies are halted and continue with the new weights (``rollout.max_policy_lag``), a reply that was under way has
both. Requests that arrive during a push wait here, and not in vLLM, which has no adapters of the policy between
unloading the old ones and loading the new ones.
"""

import asyncio
import json
import os
from collections.abc import Callable

from starlette.datastructures import MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

POLICY_VERSION_HEADER = "x-policy-version"
"""Of a completion: decimal number of the weights that sampled its first tokens. Runners read it."""

POLICY_VERSION_UNTIL_HEADER = "x-policy-version-until"
"""Of a completion during which new weights came: the number of those that may have sampled its last tokens."""

INITIAL_VERSION = "INITIAL_POLICY_VERSION"
"""Environment variable: the version that a vLLM starts with. Empty: its weights are yet to be pushed, and until then
completions are refused with status 503, which clients retry."""

SET_VERSION_PATH = "/update_weight_version"
"""vLLM's own development endpoint; the body is ``{"new_version": "7"}``."""

COMPLETIONS_PATH = "/v1/completions"
PAUSE_PATH, RESUME_PATH = "/pause", "/resume"
"""vLLM's own: between their answers nothing is sampled."""

_FINISHING = b"mode=wait"
"""Of the query of a pause that finishes the replies under way before it answers."""


class PolicyVersionHeader:
    """Adds ``x-policy-version`` to answers of ``/v1/completions``, and ``x-policy-version-until`` where that differs.

    A streamed answer has the latter at its end, as a comment of the form ``: x-policy-version-until 8``.

    A reply's first version is that at its request's arrival, or, during a push, that of the weights that come; its last
    one is that when its answer begins, with the last token. (A request that waited in vLLM's queue when the weights
    came has both versions, though the new ones sampled all of it.)
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._version = os.environ.get(INITIAL_VERSION, "0")
        self._answering = asyncio.Event()
        self._answering.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"] if scope["type"] == "http" else None
        if path == SET_VERSION_PATH:
            await self._set_version(scope, receive, send)
        elif path == PAUSE_PATH:
            await self._pause(scope, receive, send)
        elif path == COMPLETIONS_PATH:
            await self._complete(scope, receive, send)
        else:
            if path == RESUME_PATH:
                self._answering.set()  # also where no new weights came
            await self._app(scope, receive, send)

    async def _complete(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._version:
            error = {"message": "the weights of the policy are yet to be loaded; retry"}
            await JSONResponse({"error": error}, 503, {"retry-after": "1"})(scope, receive, send)
            return
        await self._answering.wait()
        since = self._version

        streamed = False

        async def adding(message: Message) -> None:
            nonlocal streamed
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                streamed = headers.get("content-type", "").startswith("text/event-stream")
                headers[POLICY_VERSION_HEADER] = since
                if since != self._version and not streamed:
                    headers[POLICY_VERSION_UNTIL_HEADER] = self._version
            elif streamed and not message.get("more_body") and since != self._version:
                comment = f": {POLICY_VERSION_UNTIL_HEADER} {self._version}\n\n".encode()
                message = {**message, "body": message.get("body", b"") + comment}
            await send(message)

        await self._app(scope, receive, adding)

    async def _pause(self, scope: Scope, receive: Receive, send: Send) -> None:
        # While replies under way are finished, requests that arrive wait for the new weights. What vLLM accepted
        # before it paused is answered before they come, so no reply has two versions.
        if _FINISHING in scope.get("query_string", b""):
            self._answering.clear()

        def note(message: Message) -> None:
            if message["status"] == 200:
                self._answering.clear()
            else:
                self._answering.set()

        try:
            await self._app(scope, receive, _at_start(send, note))
        except BaseException:  # vLLM is not paused then, and nobody would resume it
            self._answering.set()
            raise

    async def _set_version(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = bytearray()

        async def copying() -> Message:
            message = await receive()
            body.extend(message.get("body", b""))
            return message

        def note(message: Message) -> None:
            if message["status"] == 200:
                self._version = str(json.loads(body)["new_version"])
                self._answering.set()  # vLLM holds requests back until it is resumed

        await self._app(scope, copying, _at_start(send, note))


def _at_start(send: Send, act: Callable[[Message], None]) -> Send:
    """``send`` that calls ``act`` with the message that begins the answer."""

    async def acting(message: Message) -> None:
        if message["type"] == "http.response.start":
            act(message)
        await send(message)

    return acting
