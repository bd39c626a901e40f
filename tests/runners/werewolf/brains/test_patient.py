"""When the patient player has a vote tied, and that it plays as a scripted one otherwise. Seats 1 to 4 of five live."""

import random
from dataclasses import replace

import pytest

from runners.werewolf.brains import PatientBrain, ScriptedBrain
from runners.werewolf.brains.table import good_wins
from runners.werewolf.game import Decision, Role, Side
from runners.werewolf.language import saying
from runners.werewolf.language.speech import understand
from tests.support.game.game_playing import NINE, TINY
from tests.support.werewolf.crafted_questions import accuses, claim, finding, seen, speech

FOUR = (1, 2, 3, 4)
CLEARED = claim(1, (1, 2, Side.GOOD))


def asks(seat, whom, against):
    return speech(1, saying.SPLITS[0].format(accused=against, mate=seat, other=whom))


def actions(decision, seat, role, *events, brain=PatientBrain, **settings):
    question = seen(seat, role, decision, *events, living=FOUR, **{"deck": TINY.deck} | settings)
    return [brain(random.Random(seed)).act(question) for seed in range(60)]


def votes(*about, **settings):
    return {action.choice for action in actions(Decision.EXILE_VOTE, *about, **settings)}


@pytest.mark.parametrize(("against", "other"), [(3, 4), (4, 3)])
@pytest.mark.parametrize("told", [CLEARED, claim(1, (1, 5, Side.GOOD))])  # 5 is dead
def test_the_seers_mate_votes_for_whom_it_is_asked_to(against, other, told):
    told = (told, asks(2, other, against))
    assert votes(2, Role.VILLAGER, *told) == {other}
    # Also where all others want it otherwise, in the PK, and aloud.
    wanted = [accuses(seat, against) for seat in (3, 4)]
    assert votes(2, Role.VILLAGER, *told, *wanted) == {other}
    assert {action.choice for action in actions(Decision.PK_VOTE, 2, Role.VILLAGER, *told, targets=(3, 4))} == {other}
    spoken = actions(Decision.SPEECH, 2, Role.VILLAGER, *told)
    assert all(understand(action.text).accused == {other} for action in spoken)
    assert votes(2, Role.VILLAGER, *told, brain=ScriptedBrain) >= {3, 4}


def test_the_two_that_are_named_vote_for_each_other():
    for seat, other in ((3, 4), (4, 3)):
        for told in (CLEARED, claim(1, (1, 5, Side.GOOD))):
            wanted = accuses(2, seat), accuses(other, 2)
            assert votes(seat, Role.VILLAGER, told, asks(2, 4, 3), *wanted) == {other}


@pytest.mark.parametrize("limit", [40, 200])
def test_the_seer_says_who_votes_for_whom_and_keeps_to_it(limit):
    for seed in range(300):  # among them speeches without room for all that a seer would say
        brain = PatientBrain(random.Random(seed))
        settings = dict(living=FOUR, deck=TINY.deck)
        told = seen(1, Role.SEER, Decision.SPEECH, finding(1, 2, Side.GOOD), **settings)
        text = brain.act(replace(told, request=replace(told.request, speech_chars=limit))).text
        assert len(text) <= limit
        heard = understand(text)
        (named,) = heard.accused
        assert named in (3, 4) and heard.requested_votes == ((2, 7 - named),) and heard.reports == ((2, Side.GOOD),)
        against_it = [accuses(seat, 7 - named) for seat in (2, 3, 4)]
        assert brain.act(seen(1, Role.SEER, Decision.EXILE_VOTE, *against_it, **settings)).choice == named


@pytest.mark.parametrize(
    "told",
    [
        (finding(1, 2, Side.WOLF),),
        (finding(1, 2, Side.GOOD), claim(3, (1, 4, Side.GOOD))),  # somebody else claims to be the seer
        (finding(1, 2, Side.GOOD), finding(2, 3, Side.GOOD)),  # then 4 is the wolf
    ],
)
def test_the_seer_asks_for_no_tie_where_it_need_not_guess(told):
    for action in actions(Decision.SPEECH, 1, Role.SEER, *told):
        assert not understand(action.text).requested_votes


def test_between_two_claims_the_two_others_vote_apart():
    rivals = (claim(3, (1, 1, Side.GOOD)), claim(4, (1, 2, Side.GOOD)))
    pairs = set()
    for seed in range(60):
        of_two = []
        for seat in (1, 2):
            question = seen(seat, Role.VILLAGER, Decision.EXILE_VOTE, *rivals, living=FOUR, deck=TINY.deck)
            of_two.append(PatientBrain(random.Random(seed)).act(question).choice)
        pairs.add(tuple(of_two))
    # Where one of them believes a claim, it votes by it.
    assert (3, 4) in pairs and {first for first, _ in pairs} <= {3, 4}


@pytest.mark.parametrize(
    ("about", "settings"),
    [
        ((2, Role.VILLAGER, claim(1, (1, 3, Side.WOLF)), asks(2, 4, 3)), {}),  # a wolf is found
        ((3, Role.VILLAGER, CLEARED, asks(3, 4, 2)), {}),  # the seer is to vote for whom it cleared
        ((3, Role.VILLAGER, CLEARED, asks(3, 2, 4)), {}),  # its mate is to
        ((2, Role.VILLAGER, CLEARED, accuses(1, 3)), {}),  # nothing is asked
        ((2, Role.VILLAGER, CLEARED, asks(2, 1, 3)), {}),  # to vote for the seer
        ((2, Role.VILLAGER, CLEARED, asks(2, 4, 3)), {"deck": NINE.deck}),  # several wolves
        ((2, Role.WOLF, CLEARED, asks(2, 4, 3)), {}),
        ((2, Role.VILLAGER, asks(2, 4, 3)), {}),  # by nobody who says to be the seer
    ],
)
def test_otherwise_it_plays_as_a_scripted_player(about, settings):
    plain = actions(Decision.EXILE_VOTE, *about, brain=ScriptedBrain, **settings)
    assert actions(Decision.EXILE_VOTE, *about, **settings) == plain


def test_it_wins_more_than_a_scripted_player():
    """600 deals know the difference of eight points to ±3, over the same deals and wolves."""
    assert good_wins(TINY, "scripted", "patient", 600) > good_wins(TINY, "scripted", "scripted", 600) + 0.02
