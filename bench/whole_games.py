"""Whole games without models: games per second, decisions and rounds per game, calls saved by combined offers.

Independent questions are parallel: rounds determine latency, decisions throughput. Offers to explode or withdraw are
part of another decision of the same seat.
"""

import time
from pathlib import Path

from rich.table import Table

from bench.tables import table_of
from runners.werewolf.game import PRESETS, Option, Preset, Side, apply, new_game, observe, pending
from runners.werewolf.local import seeded_brains

SECONDS_OF_PLAY = 3.0


def _row(preset: Preset, players: str) -> list[str]:
    """Whole games, one after another, on one core."""
    games = decisions = rounds = offers = 0
    started = time.perf_counter()
    while (seconds := time.perf_counter() - started) < SECONDS_OF_PLAY:
        brains, state = seeded_brains(preset, games, dict.fromkeys(Side, players)), new_game(preset, games)
        while requests := pending(state):
            state = apply(state, {one.seat: brains[one.seat].act(observe(state, one.seat)) for one in requests})
            decisions, rounds = decisions + len(requests), rounds + 1
            offers += sum(len({Option.EXPLODE, Option.WITHDRAW} & set(one.options)) for one in requests)
        games += 1
    figures = (games / seconds, decisions / games, rounds / games, decisions / rounds)
    return [
        f"{preset.name}, {players}",
        *(f"{figure:.1f}" for figure in figures),
        f"{decisions / (decisions + offers):.3f}",
    ]


def measure(model_folder: Path) -> Table:
    """Play every preset for a while, with random and with scripted players."""
    rows = (_row(preset, players) for preset in PRESETS.values() for players in ("random", "scripted"))
    columns = ("preset, players", "games/s", "decisions", "rounds", "per round", "calls, relative to separate offers")
    return table_of("Whole games, rules and players alone, on one core", columns, rows)
