"""Locks that scripted players talk sense, that no trick and no pair of tricks beats them, and that sides are even.

A default run has the small tables alone: scripted players that change at all fail in ``test_panel.py``, and whoever
changes them runs `make endurance`.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache

import pytest

from runners.werewolf.brains import ScriptedBrain
from runners.werewolf.game import PRESETS, GameState, Result, winner
from tests.support.game.game_playing import play_brains
from tests.support.werewolf.nonsense import nonsense
from tests.support.werewolf.trick_players import CELLS, gain

GAMES = {**dict.fromkeys(PRESETS, 60), "12p_sheriff": 120, "10p": 120, "9p": 200, "7p": 250, "5p_tiny": 500}
"""preset -> games on either side of every comparison; their noise is about 4 points."""
SMALL = ("7p", "5p_tiny")
"""Presets of a default run; `make endurance`: all."""
TALKS = 15
"""Games of the other presets that are searched for nonsense."""
GAIN, NOISE = 0.06, 0.04
"""How much tricks may gain, and how much more is no news."""
DEALS = 60
"""Of a comparison with tricks, played with them and without."""


def more_in_endurance(few: Sequence, everything: Iterable) -> list:
    """Values of a parameter, of which a default run has few."""
    return [pytest.param(one, marks=() if one in few else pytest.mark.endurance) for one in everything]


@cache
def game(name: str, seed: int) -> GameState:
    return play_brains(PRESETS[name], seed, ScriptedBrain)


def usual(name: str) -> float:
    """As ``good_wins`` between scripted players."""
    return sum(winner(game(name, seed)) is Result.GOOD for seed in range(GAMES[name])) / GAMES[name]


@pytest.mark.parametrize("name", PRESETS)
def test_scripted_players_talk_sense(name):
    played = GAMES[name] if name in SMALL else TALKS
    counts = [nonsense(game(name, seed)) for seed in range(played)]
    assert sum((found for found, _ in counts), Counter()) == Counter()


@pytest.mark.parametrize("tricks", more_in_endurance([one for one in CELLS if len(one) == 1], CELLS))
def test_neither_a_trick_nor_two_gain_much(tricks):
    """Other presets, and many more deals: python -m bench tricks."""
    gained, error = gain(PRESETS["7p"], tricks, "scripted", range(DEALS))
    assert gained - 2 * error <= GAIN


@pytest.mark.parametrize("name", more_in_endurance(SMALL, ("12p_sheriff", "9p", *SMALL)))
def test_either_side_wins_about_as_often(name):
    most = 0.6 if name in SMALL else 0.55
    assert 1 - most - NOISE < usual(name) < most + NOISE
