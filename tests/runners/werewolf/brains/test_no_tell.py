"""Locks that no phrase of scripted players gives a side away.

A default run has the small tables alone: scripted players that change at all fail in ``test_panel.py``, and whoever
changes them runs `make endurance`, and `python -m bench tricks`, which measures what tricks gain against them.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache

import pytest

from algo.evaluation.beliefs import area_under_curve
from runners.werewolf.brains import ScriptedBrain
from runners.werewolf.game import PRESETS, SPEECHES, GameState, Result, Role, Side, winner
from runners.werewolf.language.speech import understand
from tests.support.game.game_playing import play_brains
from tests.support.werewolf.nonsense import KINDS, nonsense
from tests.support.werewolf.speech_classifier import SpeechClassifier

GAMES = {**dict.fromkeys(PRESETS, 60), "12p_sheriff": 120, "10p": 120, "9p": 200, "7p": 250, "5p_tiny": 500}
"""preset -> games on either side of every comparison; their noise is about 4 points."""
SMALL = ("7p", "5p_tiny")
"""Presets of a default run; `make endurance`: all."""
TALKS = 15
"""Games of the other presets that are searched for nonsense."""
NOISE = 0.04
"""Of a win rate over so many games."""


def more_in_endurance(few: Sequence, everything: Iterable) -> list:
    """Values of a parameter, of which a default run has few."""
    return [pytest.param(one, marks=() if one in few else pytest.mark.endurance) for one in everything]


@cache
def game(name: str, seed: int) -> GameState:
    return play_brains(PRESETS[name], seed, ScriptedBrain)


@cache
def speeches(name: str, first: int) -> tuple[list[str], list[bool]]:
    """Speeches without a claim to be one of the 神职, and whether a wolf said each."""
    said = [
        (event.text, state.role_of(event.seat).side is Side.WOLF)
        for state in (game(name, seed) for seed in range(first, first + GAMES[name]))
        for event in state.events
        if event.kind in SPEECHES and understand(event.text).claimed in (None, Role.VILLAGER)
    ]
    return [text for text, _ in said], [by_wolf for _, by_wolf in said]


@cache
def classifier(name: str) -> SpeechClassifier:
    # Of other games than those that it is tried on.
    return SpeechClassifier(*speeches(name, 20_000))


def good_wins(name: str) -> float:
    """Share of the games between scripted players."""
    return sum(winner(game(name, seed)) is Result.GOOD for seed in range(GAMES[name])) / GAMES[name]


@pytest.mark.parametrize("name", more_in_endurance(["7p"], PRESETS))
def test_the_words_of_a_speech_do_not_tell_its_side(name):
    texts, by_wolf = speeches(name, 0)
    assert area_under_curve([*zip(classifier(name).scores(texts), by_wolf, strict=True)]) <= 0.6


def test_the_classifier_finds_a_tell_where_there_is_one():
    texts, by_wolf = speeches("7p", 0)
    betrayed = [
        text + ("我没意见。" if wolf and number % 2 else "")
        for number, (text, wolf) in enumerate(zip(texts, by_wolf, strict=True))
    ]
    found = SpeechClassifier(betrayed[::2] + betrayed[1:800:2], by_wolf[::2] + by_wolf[1:800:2])
    assert area_under_curve([*zip(found.scores(betrayed[801::2]), by_wolf[801::2], strict=True)]) > 0.65


@pytest.mark.parametrize("name", PRESETS)
def test_scripted_players_talk_sense(name):
    played = GAMES[name] if name in SMALL else TALKS
    counts = [nonsense(game(name, seed)) for seed in range(played)]
    assert sum((found for found, _ in counts), Counter()) == Counter()
    occasions = sum((occasions for _, occasions in counts), Counter())
    assert occasions.keys() == set(KINDS if PRESETS[name].sheriff else (KINDS[0], KINDS[2], KINDS[3]))


@pytest.mark.parametrize("name", more_in_endurance(SMALL, ("12p_sheriff", "9p", *SMALL)))
def test_either_side_wins_about_as_often(name):
    most = 0.6 if name in SMALL else 0.55
    assert 1 - most - NOISE < good_wins(name) < most + NOISE
