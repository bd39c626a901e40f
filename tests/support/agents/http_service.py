"""A server that answers whatever a test says."""

from aiohttp import web

from algo.machine.ports import free_port


class HttpService:
    """On a port of its own, where it may be started again. ``answer`` may be replaced; asked: paths of requests."""

    def __init__(self):
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/v1"
        self.asked = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        return web.json_response({"data": []})

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request.path)
        return await self.answer(request)

    async def start(self) -> None:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()

    async def stop(self) -> None:
        await self._runner.cleanup()
