"""Tells with every completion which version of the policy's weights sampled it: an ASGI middleware for vLLM.

vLLM takes it by its option ``--middleware algo.serving.version_header.PolicyVersionHeader`` and runs it in its API
server, so it imports nothing but the standard library. Where weights are pushed with no reply under way, a reply is of
one version. Where replies are halted meanwhile and go on with the new weights (``rollout.max_policy_lag``), one that
was under way is of two: both are told. Replies that are asked for meanwhile wait here, and not in vLLM, which does not
know the policy between the moment that it forgets its old adapters and the moment that it has the new ones.
"""

import asyncio
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
"""Of a completion: decimal number of the weights that sampled it, its first tokens at least. Runners read it."""

POLICY_VERSION_UNTIL_HEADER = "x-policy-version-until"
"""Of a completion in whose midst new weights came: the number of those that may have sampled its last tokens."""

INITIAL_VERSION = "INITIAL_POLICY_VERSION"
"""Environment variable: the version that a vLLM starts with. Empty: its weights are yet to be pushed, and until then
completions are refused with status 503, which clients ask again."""

SET_VERSION_PATH = "/update_weight_version"
"""vLLM's own development endpoint; the body is ``{"new_version": "7"}``."""

COMPLETIONS_PATH = "/v1/completions"

PAUSE_PATH = "/pause"
"""vLLM's own, likewise: once it has answered, nothing is sampled until ``/resume``."""

RESUME_PATH = "/resume"

_FINISHING = b"mode=wait"
"""Of its query: that replies under way are finished before it answers, while requests that come wait."""


class PolicyVersionHeader:
    """Adds ``x-policy-version`` to answers of ``/v1/completions``, and ``x-policy-version-until`` where that differs.

    A reply's first version is that of its request's arrival; of a request that arrives while vLLM is paused, that of
    the weights that come. Its last one is that of its answer, which begins when the last token is sampled. (A request
    that waited in vLLM's queue when the weights came is told as of both, though the new ones sampled all of it.)
    """

    def __init__(self, app: Application) -> None:
        self._app = app
        self._version = os.environ.get(INITIAL_VERSION, "0")
        self._answering = asyncio.Event()
        self._answering.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on unchanged; note a version that vLLM has accepted, tell it with completions."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif scope["path"] == SET_VERSION_PATH:
            await self._note_version(scope, receive, send)
        elif scope["path"] == PAUSE_PATH:
            await self._note_pause(scope, receive, send)
        elif scope["path"] == RESUME_PATH:
            self._answering.set()  # also where no new weights came
            await self._app(scope, receive, send)
        elif scope["path"] != COMPLETIONS_PATH:
            await self._app(scope, receive, send)
        elif self._version:
            await self._answering.wait()
            await self._app(scope, receive, self._with_version(self._version, send))
        else:
            await _refuse(send)

    async def _note_pause(self, scope: Scope, receive: Receive, send: Send) -> None:
        # While replies under way are finished first, no reply is of two versions: what comes then waits for the new
        # weights, and what vLLM still took in before it paused has its answer before they come.
        if _FINISHING in scope.get("query_string", b""):
            self._answering.clear()

        async def noting(message: Message) -> None:
            if message["type"] == "http.response.start":
                if message["status"] == 200:
                    self._answering.clear()
                else:
                    self._answering.set()
            await send(message)

        try:
            await self._app(scope, receive, noting)
        except BaseException:  # vLLM is not paused then, and nobody would resume it
            self._answering.set()
            raise

    async def _note_version(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = bytearray()

        async def copying() -> Message:
            message = await receive()
            body.extend(message.get("body", b""))
            return message

        async def noting(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] == 200:
                self._version = str(json.loads(body)["new_version"])
                self._answering.set()  # vLLM has what comes wait until it is resumed
            await send(message)

        await self._app(scope, copying, noting)

    def _with_version(self, since: str, send: Send) -> Send:
        async def telling(message: Message) -> None:
            if message["type"] == "http.response.start":
                told = [(POLICY_VERSION_HEADER.encode(), since.encode())]
                if since != self._version:
                    told.append((POLICY_VERSION_UNTIL_HEADER.encode(), self._version.encode()))
                message = {**message, "headers": [*message.get("headers", ()), *told]}
            await send(message)

        return telling


async def _refuse(send: Send) -> None:
    body = json.dumps({"error": {"message": "the weights of the policy are yet to be loaded; ask again"}}).encode()
    headers = [(b"content-type", b"application/json"), (b"retry-after", b"1")]
    await send({"type": "http.response.start", "status": 503, "headers": headers})
    await send({"type": "http.response.body", "body": body})
