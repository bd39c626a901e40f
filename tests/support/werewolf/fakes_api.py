"""A fake OpenAI-compatible chat endpoint with the faults of real ones."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

from aiohttp import web

from store.schema import ChatEndpoint
from tests.support.http_fake import HttpFake

Messages = list[dict[str, Any]]
Fault = Callable[["FakeChatApi", web.Request], Any]


def error(status: int, message: str = "fake failure", **headers: str) -> Fault:
    """Answer with an HTTP error in either provider's form."""

    def answer(api: "FakeChatApi", request: web.Request) -> web.Response:
        body = {"error": {"message": message}, "code": "Fake", "message": message}
        return web.json_response(body, status=status, headers={k.replace("_", "-"): v for k, v in headers.items()})

    return answer


def text(body: str, content_type: str = "application/json") -> Fault:
    """Answer 200 with this body, whatever it is."""
    return lambda api, request: web.Response(text=body, content_type=content_type)


def drop(api: "FakeChatApi", request: web.Request) -> web.Response:
    """Break the connection without an answer."""
    request.transport.close()
    return web.Response()


async def hang(api: "FakeChatApi", request: web.Request) -> web.Response:
    """Answer only once the gate opens (``FakeChatApi.gate``)."""
    await api.gate.wait()
    return web.Response(status=503)


NO_CHOICES = text(json.dumps({"id": "f", "object": "chat.completion", "created": 0, "model": "m", "choices": []}))
BROKEN_JSON = text('{"choices": [{"message": {"content": "半')
HTML = text("<html>Bad Gateway</html>", "text/html")


class FakeChatApi(HttpFake):
    """Answers chat requests with ``answer(messages)`` and records them; ``faults`` come first, one for each request.

    hold: while cleared, requests wait. gate: opens for those that ``hang``.

    key: required in the Authorization header; None accepts any request.
    most_at_once: most concurrent requests so far.
    """

    def __init__(self, answer: Callable[[Messages], str] = lambda messages: "好的", key: str | None = None):
        self.answer = answer
        self.key = key
        self.faults: list[Fault] = []
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.gate = asyncio.Event()
        self.hold = asyncio.Event()
        self.hold.set()
        self.asked = asyncio.Event()
        self.running = self.most_at_once = 0

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self._answer)
        return app

    async def stop(self) -> None:
        self.gate.set()
        self.hold.set()
        await super().stop()

    def endpoint(self, **changes: Any) -> ChatEndpoint:
        """How to call this fake."""
        return ChatEndpoint(**{"endpoint": f"{self.url}/v1", "model": "fake-model", **changes})

    async def _answer(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.requests.append(body)
        self.headers.append(dict(request.headers))
        self.asked.set()
        self.running += 1
        self.most_at_once = max(self.most_at_once, self.running)
        try:
            await self.hold.wait()
            if self.key is not None and request.headers.get("Authorization") != f"Bearer {self.key}":
                shown = request.headers.get("Authorization")
                return error(401, f"Incorrect API key provided: {shown}")(self, request)
            if self.faults:
                answer = self.faults.pop(0)(self, request)
                return await answer if asyncio.iscoroutine(answer) else answer
            return web.json_response(self._body(self.answer(body["messages"])))
        finally:
            self.running -= 1

    @staticmethod
    def _body(reply: str) -> dict[str, Any]:
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": reply}}
        return {"id": "fake", "object": "chat.completion", "created": 0, "model": "fake-model", "choices": [choice]}
