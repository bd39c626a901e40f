"""Locks that no phrase of scripted players gives a side away, and that no single trick beats them."""

import random
from collections import Counter
from functools import lru_cache

import pytest

from runners.werewolf.brains import ScriptedBrain
from runners.werewolf.brains.table import good_wins
from runners.werewolf.game import PRESETS, SPEECHES, GameState, Role, Side
from runners.werewolf.language.speech import understand
from tests.support.game.game_playing import play_brains
from tests.support.werewolf.nonsense import nonsense
from tests.support.werewolf.speech_classifier import SpeechClassifier, area_under_curve
from tests.support.werewolf.trick_players import BelievesPlans, ReadsPhrases, gain

GAMES = {**dict.fromkeys(PRESETS, 120), "10p": 180, "9p": 200, "7p": 250, "5p_tiny": 500}
"""preset -> games on either side of every comparison; their noise is about 4 points."""
GAIN, NOISE = 0.10, 0.04
TRICKED = ("12p_sheriff", "7p")
"""Presets of the comparisons with a trick, which take seconds each."""


@lru_cache
def games(name: str, first: int) -> list[GameState]:
    return [play_brains(PRESETS[name], seed, ScriptedBrain) for seed in range(first, first + GAMES[name])]


@lru_cache
def speeches(name: str, first: int) -> tuple[list[str], list[bool]]:
    """Speeches without a claim to be one of the 神职, and whether a wolf said each."""
    said = [
        (event.text, state.role_of(event.seat).side is Side.WOLF)
        for state in games(name, first)
        for event in state.events
        if event.kind in SPEECHES and understand(event.text).claimed in (None, Role.VILLAGER)
    ]
    return [text for text, _ in said], [by_wolf for _, by_wolf in said]


@lru_cache
def classifier(name: str) -> SpeechClassifier:
    # Of other games than those that it is tried on, here and in the games of ``good_wins``.
    return SpeechClassifier(*speeches(name, 20_000))


@lru_cache
def usual(name: str) -> float:
    return good_wins(PRESETS[name], "scripted", "scripted", GAMES[name])


@pytest.mark.parametrize("name", PRESETS)
def test_the_words_of_a_speech_do_not_tell_its_side(name):
    texts, by_wolf = speeches(name, 10_000)
    assert area_under_curve(classifier(name).scores(texts), by_wolf) <= 0.6


def test_the_classifier_finds_a_tell_where_there_is_one():
    texts, by_wolf = speeches("7p", 10_000)
    betrayed = [
        text + ("我没意见。" if wolf and number % 2 else "")
        for number, (text, wolf) in enumerate(zip(texts, by_wolf, strict=True))
    ]
    found = SpeechClassifier(betrayed[::2] + betrayed[1:800:2], by_wolf[::2] + by_wolf[1:800:2])
    assert area_under_curve(found.scores(betrayed[801::2]), by_wolf[801::2]) > 0.65


@pytest.mark.parametrize("name", PRESETS)
def test_scripted_players_talk_sense(name):
    counts = [nonsense(state) for first in (10_000, 20_000) for state in games(name, first)]
    assert sum((found for found, _ in counts), Counter()) == Counter()


@pytest.mark.parametrize("name", TRICKED)
@pytest.mark.parametrize("trick", ["self-kill", "god claims", "pose"])
def test_a_trick_of_the_wolves_gains_little(name, trick):
    gained, error = gain(PRESETS[name], (trick,), "scripted", range(GAMES[name]))
    assert gained - 2 * error <= GAIN


@pytest.mark.parametrize("name", TRICKED)
def test_reading_phrases_gains_the_good_side_little(name):
    def reader(rng: random.Random) -> ReadsPhrases:
        return ReadsPhrases(rng, classifier(name))

    for trick in (reader, BelievesPlans):
        assert good_wins(PRESETS[name], "scripted", trick, GAMES[name]) < usual(name) + GAIN + NOISE


@pytest.mark.parametrize(
    ("name", "fewest", "most"),
    [("12p_sheriff", 0.45, 0.55), ("9p", 0.45, 0.55), ("7p", 0.4, 0.6), ("5p_tiny", 0.4, 0.6)],
)
def test_either_side_wins_about_as_often(name, fewest, most):
    assert fewest - NOISE < usual(name) < most + NOISE
