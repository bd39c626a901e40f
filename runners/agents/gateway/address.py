"""The gateway's HTTP server for OpenAI's and Anthropic's clients, on loopback; a path or trace id per attempt.

An attempt's calls go to ``/rollout/{rollout}/attempt/{attempt}/v1``, as agentlightning's ``ProxyLLM`` makes it, or to
``/v1`` with the header ``x-trace-id: {rollout}/{attempt}``. ``x-actor`` optionally names the actor.
"""

import json
import os
import re
import secrets
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from runners.agents.gateway.attempt import Attempt, AttemptEnded
from runners.agents.gateway.chat_api import ChatCompletions
from runners.agents.gateway.messages_api import Messages
from runners.agents.gateway.requests import Api, Block, ModelReply, RequestRefused, warn_once
from runners.agents.gateway.responses_api import Responses
from store.client import AttemptKey

TRACE_HEADER, ACTOR_HEADER = "x-trace-id", "x-actor"

_LONGEST_REQUEST_BYTES = 64 * 2**20
_ENDED_KEPT = 10_000
_APIS: dict[str, type[Api]] = {
    "POST /v1/chat/completions": ChatCompletions,
    "POST /v1/responses": Responses,
    "POST /v1/messages": Messages,
}
_ROUTE = "/rollout/{rollout}/attempt/{attempt}"


class Gateway:
    """Serves attempts between ``start`` and ``close``. ``address`` is its base URL, without path."""

    def __init__(self) -> None:
        self.address = ""
        self._attempts: dict[AttemptKey, Attempt] = {}
        self._ended: deque[AttemptKey] = deque(maxlen=_ENDED_KEPT)
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        for variable in ("NO_PROXY", "no_proxy"):  # or agents' clients would send calls to this address to a proxy
            hosts = os.environ.get(variable, "").split(",")
            os.environ[variable] = ",".join(filter(None, dict.fromkeys([*hosts, "127.0.0.1"])))
        app = web.Application(client_max_size=_LONGEST_REQUEST_BYTES)
        for prefix in (_ROUTE, ""):
            app.router.add_route("*", f"{prefix}/{{path:.*}}", self._answer)
        # Cancel calls of disconnected agents: they do not see the reply, so it is not trained on.
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=1.0)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        host, port = self._runner.addresses[0][:2]
        self.address = f"http://{host}:{port}"

    async def close(self) -> None:
        for attempt in self._attempts.values():
            attempt.end()
        if self._runner is not None:
            await self._runner.cleanup()

    @asynccontextmanager
    async def serving(self, attempt: Attempt) -> AsyncIterator[str]:
        """Serve an attempt at the yielded base URL; later calls are rejected as ended."""
        self._attempts[attempt.key] = attempt
        try:
            rollout, name = attempt.key
            yield f"{self.address}{_ROUTE.format(rollout=rollout, attempt=name)}/v1"
        finally:
            attempt.end()
            del self._attempts[attempt.key]
            self._ended.append(attempt.key)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        """Answer a request. Rejected ones are counted, logged, and answered in OpenAI's and Anthropic's format."""
        # Anthropic's clients add /v1 to their base URL, OpenAI's do not.
        path = re.sub("^v1/v1/", "v1/", request.match_info["path"])
        attempt, what = None, f"{request.method} /{path}"
        try:
            attempt = self._attempt_of(request)
            if what in _APIS:
                return await _call(request, attempt, _APIS[what])
            if what == "GET /v1/models":
                cards = [
                    {"id": name, "object": "model", "created": 0, "owned_by": "gateway"} for name in attempt.models
                ]
                return web.json_response({"object": "list", "data": cards})
            raise RequestRefused(
                f"unknown route {what}; there are {', '.join(_APIS)} and GET /v1/models, below the base URL that ends "
                f"in /v1",
                status=404,
                code="unknown_url",
            )
        except web.HTTPException as error:  # aiohttp's own: a request that is too large
            refused = RequestRefused(error.text or error.reason, error.status)
        except RequestRefused as error:
            refused = error
        if refused.status < 500:  # else the agent did not cause it
            if attempt is not None:
                attempt.refused += 1
            kind = f"{what} {refused.status} {refused.code or re.sub('[0-9]+', '0', str(refused))}"
            warn_once(kind, "an agent's %s is rejected (%d; logged once): %s", what, refused.status, refused)
        # Clients retry some statuses, which cannot help.
        return web.json_response(refused.body(), status=refused.status, headers={"x-should-retry": "false"})

    def _attempt_of(self, request: web.Request) -> Attempt:
        if "rollout" in request.match_info:
            key = (request.match_info["rollout"], request.match_info["attempt"])
        else:
            rollout, _, name = request.headers.get(TRACE_HEADER, "").partition("/")
            key = (rollout, name)
        if key in self._attempts:
            return self._attempts[key]
        if key in self._ended:
            raise AttemptEnded
        raise RequestRefused(
            f"unknown attempt {'/'.join(key)!r}: use the base URL of the task, or send its trace id in the header "
            f"{TRACE_HEADER}",
            status=404,
        )


async def _call(request: web.Request, attempt: Attempt, kind: type[Api]) -> web.StreamResponse:
    try:
        body = await request.json()
    except (ValueError, LookupError, RecursionError) as error:  # an unknown charset, nested too deeply
        raise RequestRefused(f"the request is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise RequestRefused("the request must be a JSON object")
    api = kind(body, secrets.token_hex(12), attempt.responses)
    try:
        sampling = {"temperature": attempt.resources.sampling.temperature}
        call = api.read(request.headers.get(ACTOR_HEADER), sampling)
        options = body.get("stream_options")
        if options is not None and not isinstance(options, dict):
            raise TypeError("stream_options is no object")
    except (TypeError, AttributeError, LookupError) as error:
        raise RequestRefused(f"the request has a part of the wrong type: {error}") from error
    if not body.get("stream"):
        return web.json_response(api.answer(await attempt.call(call)))
    stream = _Stream(request, api)
    try:
        reply = await attempt.call(call, stream.take)
    except RequestRefused as error:
        if stream.response is None:
            raise
        return await stream.write([error.body()], last=True)
    return await stream.end(reply)


class _Stream:
    """A streamed answer; ``response`` is None until the reply's first part."""

    def __init__(self, request: web.Request, api: Api):
        self._request = request
        self._api = api
        self._open: Block | None = None
        self.response: web.StreamResponse | None = None

    async def take(self, block: Block, text: str) -> None:
        await self.write(self._added(block, text))

    async def end(self, reply: ModelReply) -> web.StreamResponse:
        """Write the rest, or the whole reply if it was not streamed."""
        rest = list(reply.blocks()) if self._open is None else []
        if self._open is not None and self._open.kind == "thought":
            rest.append(Block("text"))
        events = [event for block in rest for event in self._added(block, block.text)]
        events += self._api.closed(self._open) if self._open else ()
        return await self.write([*events, *self._api.ended(reply)], self._api.last_line, last=True)

    async def write(self, events: Iterable[dict[str, Any]], line: str = "", last: bool = False) -> web.StreamResponse:
        text = "".join(map(_lines, events)) + line
        if self.response is None:
            headers = {"Content-Type": "text/event-stream", "Cache-Control": "no-cache"}
            self.response = web.StreamResponse(headers=headers)
            await self.response.prepare(self._request)
        await self.response.write(text.encode())
        if last:
            await self.response.write_eof()
        return self.response

    def _added(self, block: Block, text: str) -> Iterator[dict[str, Any]]:
        if self._open is None:
            yield from self._api.begun()
        if block is not self._open:
            yield from self._api.closed(self._open) if self._open else ()
            yield from self._api.opened(block)
            self._open = block
        if text:
            yield from self._api.added(block, text)


def _lines(event: dict[str, Any]) -> str:
    """A server-sent event, with its name if the API has one."""
    name = f"event: {event['type']}\n" if "type" in event else ""
    return f"{name}data: {json.dumps(event)}\n\n"
