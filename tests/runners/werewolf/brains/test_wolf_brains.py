"""Locks how scripted wolves decide, from crafted questions and what many of them answer."""

from collections import Counter

import pytest

from runners.werewolf.game import (
    Decision,
    Option,
    Role,
    Side,
)
from runners.werewolf.language.speech import understand
from tests.support.werewolf.crafted_questions import (
    NINE_SEATS,
    accuses,
    answers,
    claim,
    each_brain,
    role_claim,
    seen,
    speech,
    team,
    wolf_says,
)

# --- wolves ---------------------------------------------------------------------------------------------------------


def test_most_nights_wolves_hunt_the_seer_then_the_witch_then_the_sheriff():
    def hunted(*events, **rest):
        question = seen(1, Role.WOLF, Decision.WOLF_KILL, team(1, 2), *events, targets=NINE_SEATS, day=2, **rest)
        return Counter(brain.act(question).choice for brain in each_brain(200))

    seer, witch = claim(4, (1, 2, Side.WOLF)), speech(5, role_claim(Role.WITCH))
    mate = claim(2, (1, 4, Side.WOLF))
    for victims, first in (
        (hunted(seer, witch, mate, sheriff=6), 4),
        (hunted(witch, mate, sheriff=6), 5),
        (hunted(mate, sheriff=6), 6),
    ):
        # On other nights they hit anybody: the seer is whom the guard and the witch would save.
        assert victims[first] > 90 and set(victims) == {3, 4, 5, 6, 7, 8, 9}
    assert set(hunted(mate, sheriff=2)) == {3, 4, 5, 6, 7, 8, 9}


def test_the_wolf_that_is_sent_poses_and_runs_and_its_mates_do_not_pose():
    plan = wolf_says(3, "1号悍跳预言家。")
    others_plan = wolf_says(3, "2号悍跳预言家。")
    for brain in each_brain():
        assert (
            brain.act(seen(1, Role.WOLF, Decision.SIGN_UP, team(1, 2, 3), plan, options=(Option.RUN,))).choice
            is Option.RUN
        )
        said = brain.act(seen(1, Role.WOLF, Decision.CAMPAIGN_SPEECH, options=(Option.WITHDRAW,)))
        assert said.choice is None
        assert understand(said.text).claimed is Role.SEER
        assert len(understand(said.text).reports) == 1
        again = brain.act(seen(1, Role.WOLF, Decision.LAST_WORDS, day=2))
        assert set(understand(said.text).reports) < set(understand(again.text).reports)
    for brain in each_brain():
        said = brain.act(seen(1, Role.WOLF, Decision.SPEECH, team(1, 2, 3), others_plan))
        assert understand(said.text).claimed is not Role.SEER
    runs = [
        brain.act(seen(1, Role.WOLF, Decision.SIGN_UP, team(1, 2, 3), others_plan, options=(Option.RUN,))).choice
        for brain in each_brain(100)
    ]
    assert runs.count(Option.RUN) < 30


def test_a_named_wolf_disputes_the_seer_and_most_claim_to_be_the_seer_themselves():
    named = claim(3, (1, 1, Side.WOLF))
    posing = 0
    for brain in each_brain(100):
        said = understand(brain.act(seen(1, Role.WOLF, Decision.SPEECH, team(1), named)).text)
        assert said.accused == {3}
        assert said.claimed is not Role.SEER or said.reports == ((3, Side.WOLF),)
        posing += said.claimed is Role.SEER
        assert brain.act(seen(1, Role.WOLF, Decision.EXILE_VOTE)).choice == 3
    assert posing > 60


@pytest.mark.parametrize(
    "decision",
    [Decision.CAMPAIGN_SPEECH, Decision.SPEECH, Decision.CLOSING_SPEECH, Decision.PK_SPEECH, Decision.EXILE_VOTE],
)
def test_a_wolf_explodes_only_when_a_seer_named_it_and_then_not_always(decision):
    options = (Option.WITHDRAW, Option.EXPLODE) if decision is Decision.CAMPAIGN_SPEECH else (Option.EXPLODE,)
    ask = lambda *events: [  # noqa: E731
        brain.act(seen(1, Role.WOLF, decision, team(1, 2), *events, options=options)) for brain in each_brain(100)
    ]
    named = [action.choice for action in ask(claim(4, (1, 1, Side.WOLF)))]
    assert 10 < named.count(Option.EXPLODE) < 60
    assert all(not action.text for action in ask(claim(4, (1, 1, Side.WOLF))) if action.choice is Option.EXPLODE)
    for events in ((), (claim(4, (1, 5, Side.WOLF)),), (claim(2, (1, 1, Side.WOLF)),), (accuses(4, 1), accuses(5, 1))):
        assert Option.EXPLODE not in {action.choice for action in ask(*events)}


def test_the_wolf_king_shoots_the_seer_or_another_good_seat_and_never_a_mate():
    seer, mate = claim(4, (1, 2, Side.WOLF)), claim(2, (1, 4, Side.WOLF))
    assert answers(seen(1, Role.WOLF_KING, Decision.SHOT, team(1, 2, 3), seer, mate)) == {4}
    assert answers(seen(1, Role.WOLF_KING, Decision.SHOT, team(1, 2, 3), mate), 100) == {4, 5, 6, 7, 8, 9}
