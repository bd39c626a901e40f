"""A server that answers whatever a test says."""

from aiohttp import web

from algo.machine.ports import free_port
from tests.support.http_fake import HttpFake


class HttpService(HttpFake):
    """On a port of its own, where it may be started again. ``answer`` may be replaced; asked: paths of requests."""

    path = "/v1"

    def __init__(self):
        self.port = free_port()
        self.asked = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        return web.json_response({"data": []})

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request.path)
        return await self.answer(request)

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        return app
