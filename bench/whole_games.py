"""Whole games without models: games per second, decisions and rounds per game, calls that riding offers save.

Rounds are what latency pays, decisions what throughput pays: questions that do not depend on each other are
put at once. Offers to explode or withdraw ride along with a decision that is made anyway.
"""

import time
from pathlib import Path

from rich.table import Table

from bench.tables import table_of
from runners.werewolf.brains import Brain
from runners.werewolf.game import PRESETS, Action, Observation, Option, Preset, Side
from runners.werewolf.local import play_locally, seeded_brains

SECONDS_OF_PLAY = 3.0


class _Counting:
    """Counts what rides along on the questions to a player."""

    offers = 0

    def __init__(self, brain: Brain):
        self._brain = brain

    def act(self, observation: Observation) -> Action:
        _Counting.offers += len({Option.EXPLODE, Option.WITHDRAW} & set(observation.request.options))
        return self._brain.act(observation)


def _row(preset: Preset, players: str) -> list[str]:
    """Games to their end, one after another, on one core."""
    _Counting.offers = games = decisions = rounds = 0
    started = time.perf_counter()
    while (seconds := time.perf_counter() - started) < SECONDS_OF_PLAY:
        brains = seeded_brains(preset, games, dict.fromkeys(Side, players))
        game = play_locally(preset, games, {seat: _Counting(brain) for seat, brain in brains.items()})
        games, decisions, rounds = games + 1, decisions + game.decisions, rounds + game.rounds
    figures = (games / seconds, decisions / games, rounds / games, decisions / rounds)
    saved = decisions / (decisions + _Counting.offers)
    return [f"{preset.name}, {players}", *(f"{figure:.1f}" for figure in figures), f"{saved:.3f}"]


def measure(model_folder: Path) -> Table:
    """Play every preset for a while, with random and with scripted players."""
    rows = (_row(preset, players) for preset in PRESETS.values() for players in ("random", "scripted"))
    columns = ("preset, players", "games/s", "decisions", "rounds", "per round", "calls, against offers apart")
    return table_of("Whole games, rules and players alone, on one core", columns, rows)
