"""A server that answers whatever a test says."""

from collections.abc import Awaitable

from aiohttp import web

from algo.machine.ports import free_port
from tests.support.http_fake import HttpFake


class HttpService(HttpFake):
    """On a port of its own, where it may be started again. asked: paths of requests.

    ``answer`` may be replaced by any function of the request, asynchronous or not.
    """

    path = "/v1"

    def __init__(self):
        self.port = free_port()
        self.asked = []

    def answer(self, request: web.Request) -> Awaitable[web.StreamResponse] | web.StreamResponse:
        return web.json_response({"data": []})

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request.path)
        answer = self.answer(request)
        return await answer if isinstance(answer, Awaitable) else answer

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        return app
