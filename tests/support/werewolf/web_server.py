"""The pages on a free port, in the test's own loop."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from runners.werewolf.agent import WerewolfGames
from runners.werewolf.web.app import Pages, make_app
from runners.werewolf.web.folders import RunFolders
from runners.werewolf.web.hub_games import HubGames
from runners.werewolf.web.opponents import Opponents
from runners.werewolf.web.tables import Tables
from store.client import connect
from store.schema import TokenLimits
from tests.support.http_fake import HttpFake


class WebServer(HttpFake):
    """files, runs, tokenizer, hub, opponents: as the command line has them, the last as ``Opponents`` takes them.

    token: for a server that is not on loopback alone. games: stands for the games of the hub. session: a client of it.
    """

    def __init__(
        self,
        folder: Path,
        files: Sequence[Path] = (),
        runs: Path | None = None,
        hub: str | None = None,
        tokenizer: Path | None = None,
        token: str | None = None,
        hosts: tuple[str, ...] = (),
        retry_seconds: float = 5.0,
        games: Any = None,
        **opponents: Any,
    ):
        client = None if hub is None else connect(hub, retry_seconds=retry_seconds)
        folders = RunFolders(*[] if runs is None else [runs])
        games = games if client is None else HubGames(client, hub)
        whom = Opponents(client, folders, hub=hub or "", **opponents)
        play = WerewolfGames(whom.addresses, tokenizer, 5.0, whom.keys)
        limits = TokenLimits(context_tokens=8192, reply_tokens=512)
        self.tables = Tables(play, whom, folder / "kept", tokenizer, client, limits)
        self._pages = Pages(self.tables, files, folders, games, tokenizer)
        self._app = make_app(self._pages, token, hosts)

    def app(self) -> web.Application:
        return self._app

    def routes(self) -> list[web.AbstractRoute]:
        """All addresses."""
        return list(self._app.router.routes())

    async def get(self, path: str, **params: Any) -> tuple[int, Any]:
        """(status, data) of an address."""
        async with self.session.get(path, params=params) as response:
            return response.status, await response.json()

    async def start(self) -> str:
        self.session = aiohttp.ClientSession(url := await super().start())
        return url

    async def stop(self) -> None:
        await self.session.close()
        await super().stop()
        await self._pages.close()
