"""Whole games without models: games per second, decisions and rounds per game, calls that riding offers save.

Rounds are what latency pays, decisions what throughput pays: questions that do not depend on each other are
put at once. Offers to explode or withdraw ride along with a decision that is made anyway.
"""

import time
from dataclasses import dataclass

from rich.table import Table

from bench.tables import table_of
from runners.werewolf.brains import Brain
from runners.werewolf.game import PRESETS, Action, Observation, Option, Preset, Side
from runners.werewolf.local import play_locally, seeded_brains

SECONDS_OF_PLAY = 3.0


@dataclass(frozen=True)
class Play:
    """How games of one preset went. Per game: decisions (a model needs a call for each), rounds of questions put
    at once, and offers that rode along with a decision instead of taking a call of their own."""

    games_per_second: float
    decisions: float
    rounds: float
    offers: float


def play_for_a_while(preset: Preset, players: str) -> Play:
    """Games to their end, one after another, on one core."""
    offers = 0

    class Counting:
        def __init__(self, brain: Brain):
            self._brain = brain

        def act(self, observation: Observation) -> Action:
            nonlocal offers
            offers += len({Option.EXPLODE, Option.WITHDRAW} & set(observation.request.options))
            return self._brain.act(observation)

    games, started = [], time.perf_counter()
    while time.perf_counter() - started < SECONDS_OF_PLAY:
        brains = seeded_brains(preset, len(games), dict.fromkeys(Side, players))
        game = play_locally(preset, len(games), {seat: Counting(brain) for seat, brain in brains.items()})
        games.append((game.decisions, game.rounds))
    played = len(games)
    decisions, rounds = (sum(column) / played for column in zip(*games, strict=True))
    return Play(played / (time.perf_counter() - started), decisions, rounds, offers / played)


def measure() -> Table:
    """Play every preset for a while, with random and with scripted players."""
    rows = []
    for name, preset in PRESETS.items():
        for players in ("random", "scripted"):
            play = play_for_a_while(preset, players)
            figures = (play.games_per_second, play.decisions, play.rounds, play.decisions / play.rounds)
            saved = play.decisions / (play.decisions + play.offers)
            rows.append((f"{name}, {players}", *(f"{figure:.1f}" for figure in figures), f"{saved:.3f}"))
    columns = ("preset, players", "games/s", "decisions", "rounds", "per round", "calls, against offers apart")
    return table_of("Whole games, rules and players alone, on one core", columns, rows)
