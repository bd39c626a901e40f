"""When the patient player has a vote tied, and that it plays as a scripted one otherwise. Seats 1 to 4 of five live."""

import random

import pytest
from crafted_questions import accuses, claim, finding, seen, speech
from game_playing import NINE, TINY

from runners.werewolf.brains import PatientBrain, ScriptedBrain
from runners.werewolf.brains.table import good_wins
from runners.werewolf.game import Decision, Role, Side
from runners.werewolf.talk_zh.reading import understand

FOUR = (1, 2, 3, 4)
CLEARED = claim(1, (1, 2, Side.GOOD))


def actions(decision, seat, role, *events, brain=PatientBrain, **settings):
    question = seen(seat, role, decision, *events, living=FOUR, **{"deck": TINY.deck} | settings)
    return [brain(random.Random(seed)).act(question) for seed in range(60)]


def votes(*about, **settings):
    return {action.choice for action in actions(Decision.EXILE_VOTE, *about, **settings)}


@pytest.mark.parametrize(("called", "other"), [(3, 4), (4, 3)])
def test_whom_the_seer_cleared_stands_against_whom_the_seer_does_not(called, other):
    told = (CLEARED, accuses(1, called))
    assert votes(2, Role.VILLAGER, *told) == {other}
    # Also where all others want it otherwise, in the PK, and aloud.
    wanted = [accuses(seat, called) for seat in (3, 4)]
    assert votes(2, Role.VILLAGER, *told, *wanted) == {other}
    assert {action.choice for action in actions(Decision.PK_VOTE, 2, Role.VILLAGER, *told, targets=(3, 4))} == {other}
    spoken = actions(Decision.SPEECH, 2, Role.VILLAGER, *told)
    assert all(understand(action.text).accused == {other} for action in spoken)
    assert votes(2, Role.VILLAGER, *told, brain=ScriptedBrain) >= {3, 4}


def test_the_seer_keeps_to_whom_it_spoke_against():
    for seed in range(60):
        brain = PatientBrain(random.Random(seed))
        settings = dict(living=FOUR, deck=TINY.deck)
        told = seen(1, Role.SEER, Decision.SPEECH, finding(1, 2, Side.GOOD), **settings)
        (named,) = understand(brain.act(told).text).accused
        assert named in (3, 4)
        heard = [accuses(seat, 7 - named) for seat in (2, 3, 4)]
        assert brain.act(seen(1, Role.SEER, Decision.EXILE_VOTE, *heard, **settings)).choice == named


def test_between_two_claims_the_two_others_vote_apart():
    rivals = (claim(3, (1, 1, Side.GOOD)), claim(4, (1, 2, Side.GOOD)))
    pairs = set()
    for seed in range(60):
        of_two = []
        for seat in (1, 2):
            question = seen(seat, Role.VILLAGER, Decision.EXILE_VOTE, *rivals, living=FOUR, deck=TINY.deck)
            brain = PatientBrain(random.Random(seed))
            of_two.append(brain.act(question).choice)
        pairs.add(tuple(of_two))
    # Where one of them believes a claim, it votes by it.
    assert (3, 4) in pairs and {first for first, _ in pairs} <= {3, 4}


@pytest.mark.parametrize(
    ("about", "settings"),
    [
        ((2, Role.VILLAGER, claim(1, (1, 3, Side.WOLF)), accuses(1, 3)), {}),  # a wolf is found
        ((3, Role.VILLAGER, CLEARED, accuses(1, 3)), {}),  # it is not the one that was cleared, and knows itself
        ((2, Role.VILLAGER, claim(1, (1, 5, Side.GOOD)), accuses(1, 3)), {}),  # the dead one was checked
        ((2, Role.VILLAGER, CLEARED), {}),  # the seer named nobody to stand apart from
        ((2, Role.VILLAGER, CLEARED, accuses(1, 3)), {"deck": NINE.deck}),  # several wolves
        ((2, Role.WOLF, CLEARED, accuses(1, 3)), {}),
        ((2, Role.VILLAGER, speech(1, "我是好人。"), accuses(1, 3)), {}),
    ],
)
def test_otherwise_it_plays_as_a_scripted_player(about, settings):
    plain = actions(Decision.EXILE_VOTE, *about, brain=ScriptedBrain, **settings)
    assert actions(Decision.EXILE_VOTE, *about, **settings) == plain


def test_it_wins_more_than_a_scripted_player():
    """600 deals know the difference of five points to ±2.8, over the same deals and wolves."""
    assert good_wins(TINY, "scripted", "patient", 600) > good_wins(TINY, "scripted", "scripted", 600) + 0.01
