"""All games that can be opened here, by id: files, runs' folders, a hub, and tables that were played here."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from runners.werewolf.web.batch_numbers import BatchNumbers
from runners.werewolf.web.folders import GameFiles, NotThere, RunFolders
from runners.werewolf.web.hub_games import HubGames
from runners.werewolf.web.run_numbers import run_data
from runners.werewolf.web.token_rows import TokenRows
from runners.werewolf.web.views import ShownGame


class Library:
    """Games by id. hub: None without ``--store``. tokenizer: folder to show tokens with; None finds the run's own."""

    def __init__(
        self,
        files: Sequence[Path] = (),
        runs: Path | None = None,
        hub: HubGames | None = None,
        tokenizer: Path | None = None,
    ):
        self._files = GameFiles(files)
        self._runs = RunFolders(runs)
        self._hub = hub
        self._tokens = TokenRows(self._runs, tokenizer)
        self._batches = BatchNumbers()
        self.played_here: Callable[[str], ShownGame] = _no_table

    def config(self) -> dict[str, Any]:
        """What there is, for the first page."""
        return {
            "hub": None if self._hub is None else self._hub.url,
            "files": self._files.rows(),
            "runs": self._runs.names()[:50],
        }

    async def games(self, query: Mapping[str, str]) -> dict[str, Any]:
        """One page of the hub's games; see ``HubGames.page``."""
        if self._hub is None:
            raise NotThere("no hub: start with --store URL")
        return await self._hub.page(query)

    async def game(self, game_id: str) -> ShownGame:
        """A game as it stands. Raises NotThere and UnreadableGame."""
        kind = game_id.partition(":")[0]
        if kind == "file":
            return await asyncio.to_thread(self._files.game, game_id)
        if kind == "run":
            return await asyncio.to_thread(self._kept_by_a_run, game_id)
        if kind == "table":
            return self.played_here(game_id)
        if kind == "hub" and self._hub is not None:
            return self._named(await self._hub.game(game_id))
        raise NotThere(f"no game {game_id!r}")

    def _named(self, game: ShownGame) -> ShownGame:
        """A game of an evaluation with the name of what was evaluated: its policy's version may be 0 for any step."""
        evaluated = self._runs.evaluation_of(game)
        return game if evaluated is None else replace(game, about={**game.about, "evaluation": evaluated.label})

    def _kept_by_a_run(self, game_id: str) -> ShownGame:
        game = self._runs.game(game_id)
        return game if game.turns else replace(game, turns=self._tokens.turns_of(game))

    async def follow(self, game_id: str) -> AsyncIterator[ShownGame]:
        """A game as it goes on: at once, and whenever there is more; ends with the game."""
        if game_id.startswith("hub:") and self._hub is not None:
            async for game in self._hub.follow(game_id):
                yield self._named(game)
        else:
            yield await self.game(game_id)

    async def tokens(self, game: ShownGame, seat: int, segment: int) -> dict[str, Any]:
        """A seat's segment token by token; see ``TokenRows``. Raises NotThere."""
        spans = await self._hub.turn_spans(game.id) if game.id.startswith("hub:") and self._hub is not None else ()
        of_seat = [span for span in spans if (span.seat, span.segment) == (seat, segment)]
        return await asyncio.to_thread(self._tokens.of, game, of_seat, seat, segment)

    def runs(self) -> dict[str, Any]:
        """The runs in the folder, newest first."""
        return {"runs": [{"name": name} for name in self._runs.names()]}

    def run(self, name: str, position: int) -> dict[str, Any]:
        """A run at a glance; see ``run_data``. Raises NotThere."""
        return run_data(self._runs, self._batches, name, position)

    async def close(self) -> None:
        """Close the connection to the hub."""
        if self._hub is not None:
            await self._hub.close()


def _no_table(game_id: str) -> ShownGame:
    raise NotThere(f"no game {game_id!r}")
