"""ASGI middleware for vLLM that adds the policy version of each completion.

vLLM loads it by ``--middleware algo.serving.version_header.PolicyVersionHeader`` in its API server, so this module only
imports Starlette. A reply has one version, or two if it was interrupted by a push and continued with the new weights
(``rollout.max_policy_lag``). Requests during a push wait here and not in vLLM, which has no adapters of the policy
between unloading the old ones and loading the new ones.
"""

import asyncio
import json
import os
from collections.abc import Callable

from starlette.datastructures import MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

POLICY_VERSION_HEADER = "x-policy-version"
"""Header of a completion, for runners: version of the weights that sampled its first tokens."""

POLICY_VERSION_UNTIL_HEADER = "x-policy-version-until"
"""Header of a completion that was interrupted by a push: version for its last tokens."""

INITIAL_VERSION = "INITIAL_POLICY_VERSION"
"""Environment variable: the version at vLLM's start. Empty: completions are rejected until a push, with status 503,
which clients retry."""

SET_VERSION_PATH = "/update_weight_version"
"""vLLM's development endpoint; the body is ``{"new_version": "7"}``."""

COMPLETIONS_PATH = "/v1/completions"
PAUSE_PATH, RESUME_PATH = "/pause", "/resume"
"""vLLM's endpoints: between their responses nothing is sampled."""

_FINISHING = b"mode=wait"
"""In the query of a pause that first finishes open replies."""


class PolicyVersionHeader:
    """Adds ``x-policy-version`` to responses of ``/v1/completions``, and ``x-policy-version-until`` if it differs.

    A streamed response has the latter at its end, as a comment of the form ``: x-policy-version-until 8``.

    The first version is that at the request's arrival, or, during a push, the new one; the last is that when the
    response begins, after the last token. (A request in vLLM's queue during the push has both, although the new weights
    sampled all of it.)
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._version = os.environ.get(INITIAL_VERSION, "0")
        self._answering = asyncio.Event()
        self._answering.set()
        self._open, self._idle = 0, asyncio.Event()
        self._idle.set()

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
                self._answering.set()  # also without new weights
            await self._app(scope, receive, send)

    async def _complete(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._version:
            error = {"message": "the policy's weights are not loaded yet; retry"}
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

        self._open += 1
        self._idle.clear()
        try:
            await self._app(scope, receive, adding)
        finally:
            self._open -= 1
            if not self._open:
                self._idle.set()

    async def _pause(self, scope: Scope, receive: Receive, send: Send) -> None:
        # While open replies are finished, new requests wait for the new weights, so that no reply has two versions.
        if _FINISHING in scope.get("query_string", b""):
            self._answering.clear()

        def note(message: Message) -> None:
            if message["status"] == 200:
                self._answering.clear()
            else:
                self._answering.set()

        try:
            if _FINISHING in scope.get("query_string", b""):
                # vLLM waits for replies that it has begun, not for those in its queue, which would fill its cache with
                # blocks of old adapters.
                await self._idle.wait()
            await self._app(scope, receive, _at_start(send, note))
        except BaseException:  # vLLM is not paused, so that no resume follows
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

        await self._app(scope, copying, _at_start(send, note))


def _at_start(send: Send, act: Callable[[Message], None]) -> Send:
    """``send`` that calls ``act`` with the first message of the response."""

    async def acting(message: Message) -> None:
        if message["type"] == "http.response.start":
            act(message)
        await send(message)

    return acting
