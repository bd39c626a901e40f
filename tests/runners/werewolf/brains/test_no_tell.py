"""Locks that no phrase of scripted players gives a side away, and that no trick and no pair of tricks beats them."""

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
from tests.support.werewolf.trick_players import CELLS, BelievesPlans, ReadsPhrases, gain

GAMES = {**dict.fromkeys(PRESETS, 120), "10p": 180, "9p": 200, "7p": 250, "5p_tiny": 500}
"""preset -> games on either side of every comparison; their noise is about 4 points."""
GAIN, NOISE = 0.06, 0.04
"""How much tricks may gain, and how much more is no news."""
DEALS = {"12p_sheriff": 100, "9p": 120, "7p": 60}
"""preset -> deals of a comparison with tricks, played with them and without."""


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


@pytest.mark.parametrize(
    ("name", "tricks"),
    [
        *(("7p", tricks) for tricks in CELLS),
        *((name, ("self-kill", "pose")) for name in ("12p_sheriff", "9p")),
        *((name, ("pose", "false witch")) for name in ("12p_sheriff", "9p")),
        ("12p_sheriff", ("pose",)),
        ("12p_sheriff", ("explode twice",)),
    ],
)
def test_neither_a_trick_nor_two_gain_much(name, tricks):
    """The whole table, of many more deals: python -m bench tricks."""
    gained, error = gain(PRESETS[name], tricks, "scripted", range(DEALS[name]))
    assert gained - 2 * error <= GAIN


def test_reading_phrases_gains_the_good_side_little():
    def reader(rng: random.Random) -> ReadsPhrases:
        return ReadsPhrases(rng, classifier("7p"))

    assert good_wins(PRESETS["7p"], "scripted", reader, GAMES["7p"]) < usual("7p") + GAIN + NOISE


def test_reading_who_says_whom_it_will_check_gains_the_good_side_little():
    name = "12p_sheriff"
    assert good_wins(PRESETS[name], "scripted", BelievesPlans, GAMES[name]) < usual(name) + GAIN + NOISE


@pytest.mark.parametrize(
    ("name", "fewest", "most"),
    [("12p_sheriff", 0.45, 0.55), ("9p", 0.45, 0.55), ("7p", 0.4, 0.6), ("5p_tiny", 0.4, 0.6)],
)
def test_either_side_wins_about_as_often(name, fewest, most):
    assert fewest - NOISE < usual(name) < most + NOISE
