"""Who beats whom, every player on either side against every other and against itself (``python -m algo.cross_table``).

It shows what there is to win before a training run begins: how scripted players fare against players who choose by
chance, and where a policy stands between them.
"""

import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from algo.evaluation.play import temperature_of
from algo.evaluation.players import serve_players
from algo.evaluation.statistics import Estimate, wilson_interval
from algo.machine.progress import game_progress
from algo.machine.whole_files import write_whole
from algo.reports.page_parts import estimate_text
from algo.run.folder import OpenedRun
from algo.werewolf.file_names import CROSS_TABLE_FILE
from algo.werewolf.matches import SIDES, GameRecord, held_out_deals, match_tasks, players_by_side, record_games
from configs.werewolf import WerewolfConfig
from store.schema import TRAINED_POLICY
from store.werewolf import GameTask, SideName

logger = logging.getLogger("algo.cross_table")


class Cell(BaseModel):
    """The games of one player as the wolves (row) against one as the good side (column).

    games: finished ones. not_finished: games that were to be played and failed, or could not be read.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    wolf: str
    good: str
    games: int = Field(ge=0)
    wolf_wins: int = Field(ge=0)
    good_wins: int = Field(ge=0)
    draws: int = Field(ge=0)
    not_finished: int = Field(0, ge=0)

    @model_validator(mode="after")
    def _every_game_ended_in_one_way(self) -> Self:
        if self.wolf_wins + self.good_wins + self.draws != self.games:
            raise ValueError(
                f"{self.wolf} against {self.good}: {self.wolf_wins} + {self.good_wins} wins and {self.draws} draws do "
                f"not make {self.games} games"
            )
        return self

    def win_rate(self, side: SideName) -> Estimate | None:
        """The share of the finished games that a side won, with Wilson's interval; a draw is nobody's win.

        None without finished games.
        """
        wins = self.wolf_wins if side == "wolf" else self.good_wins
        return wilson_interval(wins, self.games) if self.games else None


class CrossTable(BaseModel):
    """Who beats whom.

    players: their names, in the order of rows and columns. preset: what was played. seed, deals: of the held-out deals,
    each of which was played once in every cell. model: folder of the policy; empty where it did not play.
    cells: row by row; the wolves' player is the row.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    players: tuple[str, ...]
    preset: str
    seed: int
    deals: int
    model: str
    cells: tuple[Cell, ...]

    @model_validator(mode="after")
    def _has_every_cell(self) -> Self:
        if [(cell.wolf, cell.good) for cell in self.cells] != [(a, b) for a in self.players for b in self.players]:
            raise ValueError("the cells are not those of every pair of players, row by row")
        return self

    def cell(self, wolf: str, good: str) -> Cell:
        """The games of ``wolf`` as the wolves against ``good``. Raises KeyError for a player that did not play."""
        for cell in self.cells:
            if (cell.wolf, cell.good) == (wolf, good):
                return cell
        raise KeyError(f"nobody played {wolf!r} against {good!r}; players: {', '.join(self.players)}")

    def write(self, path: Path) -> None:
        """Write it as JSON. A file that is there is replaced whole."""
        write_whole(path, self.model_dump_json(indent=1) + "\n")

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read what ``write`` wrote. Raises ValueError, naming the file and what is wrong with it."""
        try:
            return cls.model_validate_json(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{path} is no cross table that this version can read: {error}") from error


def cross_table_tasks(players: Sequence[str], config: WerewolfConfig, deals: int, name: str) -> list[GameTask]:
    """One game for each deal and each ordered pair of players, a player with itself included.

    name: names the games and, with the players, seeds their sampling.
    """
    seeds = held_out_deals(deals, config.evaluation.seed)
    tasks = []
    for number, first in enumerate(players):
        for second in players[number:]:
            both_seatings = match_tasks(first, second, seeds, config, name)
            # A player against itself sits on both sides either way.
            tasks += both_seatings[:: len(SIDES)] if first == second else both_seatings
    return tasks


def cells_of(players: Sequence[str], tasks: Iterable[GameTask], games: Iterable[GameRecord]) -> tuple[Cell, ...]:
    """The cells, row by row. tasks: of all games that were to be played; games: of those that finished."""
    expected: Counter[tuple[str, str]] = Counter()
    for task in tasks:
        by_side = players_by_side(task)
        expected[by_side["wolf"], by_side["good"]] += 1
    results: Counter[tuple[str, str, str]] = Counter(
        (game.players["wolf"], game.players["good"], game.result) for game in games
    )
    cells = []
    for wolf in players:
        for good in players:
            wolf_wins, good_wins, draws = (results[wolf, good, result] for result in (*SIDES, "draw"))
            finished = wolf_wins + good_wins + draws
            cells.append(
                Cell(
                    wolf=wolf,
                    good=good,
                    games=finished,
                    wolf_wins=wolf_wins,
                    good_wins=good_wins,
                    draws=draws,
                    not_finished=expected[wolf, good] - finished,
                )
            )
    return tuple(cells)


async def play_cross_table(
    opened: OpenedRun, players: Sequence[str], deals: int, model: Path | None
) -> tuple[CrossTable, Path]:
    """Play it through the hub and the runners, and write what was found; returns it and its file.

    model: the policy's folder; None for ``model.path``. A vLLM is started, or attached to, only where the policy plays.
    Raises StoreUnreachable, ServingError, NothingFinished, and ConfigError for weights that do not fit.
    """
    config = opened.config
    folder = (model or config.model.path).resolve()
    tasks = cross_table_tasks(players, config, deals, config.run.name)
    async with serve_players(opened, players, folder) as served:
        resources = served.resources.model_copy(
            update={
                "sampling": served.resources.sampling.model_copy(update={"temperature": temperature_of(config)}),
                "judge": None,  # would be asked in vain: nothing is rewarded
            }
        )
        with game_progress("cross table", len(tasks)) as on_progress:
            played = await served.games.play(tasks, resources, served.check_alive, on_progress, mode="val")
    for reason, count in played.failures.items():
        logger.warning("%d games failed: %s", count, reason)
    table = CrossTable(
        players=tuple(players),
        preset=config.game.preset,
        seed=config.evaluation.seed,
        deals=deals,
        model=str(folder) if TRAINED_POLICY in players else "",
        cells=cells_of(players, tasks, record_games(tasks, played.finished)),
    )
    path = config.run_dir / CROSS_TABLE_FILE
    table.write(path)
    return table, path


def show_cross_table(table: CrossTable, console: Console) -> None:
    """Print it: the share of games that the wolves won."""
    shown = Table(
        title=f"Games won by the wolves (row) against the good side (column), with 95 % intervals; {table.preset}, "
        f"{table.deals} deals a cell",
        title_justify="left",
        box=SIMPLE,
    )
    shown.add_column("wolves")
    for name in table.players:
        shown.add_column(f"good: {name}", justify="right", no_wrap=True)
    for wolf in table.players:
        shown.add_row(wolf, *(estimate_text(table.cell(wolf, good).win_rate("wolf")) for good in table.players))
    console.print(shown)
    draws, missing = sum(cell.draws for cell in table.cells), sum(cell.not_finished for cell in table.cells)
    console.print(f"{draws} draws count as won by nobody; {missing} games did not finish", highlight=False)
