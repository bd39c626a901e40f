"""Fakes of HTTP services: each is a server on a port of this machine, within the test's process."""

from typing import Self

from aiohttp import web


class HttpFake:
    """Started again, it listens where it did before. path: ends ``url``."""

    port = 0
    path = ""

    def app(self) -> web.Application:
        raise NotImplementedError

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}{self.path}"

    async def start(self) -> str:
        """Listen, on a free port; returns ``url``."""
        self._runner = web.AppRunner(self.app(), shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()
        self.port = self._runner.addresses[0][1]
        return self.url

    async def stop(self) -> None:
        await self._runner.cleanup()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.stop()
