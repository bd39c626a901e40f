"""Locks how scripted wolves decide, from crafted questions and what many of them answer."""

from collections import Counter

import pytest

from runners.werewolf.game import (
    Decision,
    Event,
    EventKind,
    Option,
    Role,
    Side,
)
from runners.werewolf.language.speech import understand, understand_wolf
from tests.support.game.game_playing import TINY, TWELVE
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


def test_a_wolf_takes_up_the_first_proposal_unless_it_is_a_mate_after_the_first_night():
    talked = [wolf_says(2, "", 2), wolf_says(3, "建议袭击5号。"), wolf_says(2, "", 6)]
    for decision in (Decision.WOLF_TALK, Decision.WOLF_KILL):
        for day, expected in ((1, 2), (2, 5)):
            for brain in each_brain():
                question = seen(1, Role.WOLF, decision, team(1, 2, 3), *talked, targets=NINE_SEATS, day=day)
                action = brain.act(question)
                assert action.choice == expected
                assert decision is Decision.WOLF_KILL or understand_wolf(action.text, 1)[0] == expected
    new_night = Event(EventKind.NIGHT_FALLS, 2)
    later = seen(1, Role.WOLF, Decision.WOLF_KILL, team(1, 2, 3), *talked, new_night, targets=NINE_SEATS, day=2)
    assert len(answers(later)) > 3


def test_wolves_seldom_hit_one_of_their_own_for_the_witch_to_save():
    def own(day, deck):
        question = seen(1, Role.WOLF, Decision.WOLF_TALK, team(1, 2, 3), targets=NINE_SEATS, day=day, deck=deck)
        return sum(brain.act(question).choice in (1, 2, 3) for brain in each_brain(300))

    assert 4 < own(1, TWELVE.deck) < 40
    assert own(2, TWELVE.deck) == own(1, TINY.deck) == 0  # nobody to save them


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


def test_a_posing_wolf_wants_exiled_whom_it_framed_and_not_whom_it_cleared():
    for brain in each_brain():
        plan = wolf_says(2, "1号悍跳预言家。")
        heard = understand(brain.act(seen(1, Role.WOLF, Decision.SPEECH, team(1, 2, 3), plan)).text)
        vote = brain.act(seen(1, Role.WOLF, Decision.EXILE_VOTE)).choice
        ((target, side),) = heard.reports
        assert vote not in (2, 3)
        assert (vote == target) == (side is Side.WOLF)
        assert heard.accused == {vote} or side is Side.GOOD


def test_some_wolves_back_a_mate_that_poses():
    posing = claim(2, (1, 5, Side.WOLF))
    plan = wolf_says(3, "2号悍跳预言家。")
    told = (team(1, 2, 3), plan, claim(4, (1, 6, Side.GOOD)), posing)
    played = []
    for brain in each_brain(100):
        elected = brain.act(seen(1, Role.WOLF, Decision.SHERIFF_VOTE, *told, targets=(2, 3, 4, 7))).choice
        said = understand(brain.act(seen(1, Role.WOLF, Decision.SPEECH)).text)
        played.append((elected, said.followed, brain.act(seen(1, Role.WOLF, Decision.EXILE_VOTE)).choice))
    # Others do nearly as a good seat would (倒钩), but vote for no mate.
    assert 20 < len([play for play in played if play == (2, 2, 5)]) < 70
    assert not {2, 3} & {vote for _, _, vote in played}
    assert {(4, 4)} < {(elected, followed) for elected, followed, _ in played}


def test_hardly_a_wolf_stands_against_a_seer_that_no_wolf_disputes():
    votes = [
        brain.act(seen(1, Role.WOLF, Decision.EXILE_VOTE, team(1, 2), claim(4, (1, 5, Side.WOLF)))).choice
        for brain in each_brain(60)
    ]
    assert votes.count(4) < 10
    assert 2 not in votes


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


def test_wolves_seldom_turn_on_a_mate_and_only_on_one_that_was_named():
    named = claim(4, (1, 2, Side.WOLF))
    accused = [accuses(seat, 2) for seat in (5, 6, 7)]
    votes = [
        brain.act(seen(1, Role.WOLF, Decision.EXILE_VOTE, team(1, 2, 3), named, *accused)).choice
        for brain in each_brain(100)
    ]
    assert 10 < votes.count(2) < 50
    assert votes.count(4) == 100 - votes.count(2)
    assert not {2, 3} & answers(seen(1, Role.WOLF, Decision.EXILE_VOTE, team(1, 2, 3), *accused))


def test_a_wolf_votes_for_a_mate_where_it_must():
    assert answers(seen(1, Role.WOLF, Decision.PK_VOTE, team(1, 2, 3), targets=(2, 3))) == {None}
    assert answers(seen(1, Role.WOLF, Decision.PK_VOTE, team(1, 2, 3), targets=(2, 3), may_pass=False)) == {2, 3}


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


def test_a_wolf_that_may_not_explode_never_does():
    named = claim(4, (1, 1, Side.WOLF))
    assert Option.EXPLODE not in answers(seen(1, Role.WOLF_KING, Decision.EXILE_VOTE, team(1, 2), named), 60)


def test_wolves_may_explode_to_keep_the_badge_from_a_seer_in_an_election_that_was_put_off():
    def explosions(day, *events, targets):
        vote = seen(
            1,
            Role.WOLF,
            Decision.SHERIFF_VOTE,
            team(1, 2),
            *events,
            day=day,
            targets=targets,
            options=(Option.EXPLODE,),
        )
        return sum(brain.act(vote).choice is Option.EXPLODE for brain in each_brain(100))

    seer = claim(4, (1, 5, Side.GOOD))
    assert 10 < explosions(2, seer, targets=(4, 6)) < 60
    assert explosions(1, seer, targets=(4, 6)) == 0
    assert explosions(2, seer, targets=(6, 7)) == 0
    assert explosions(2, claim(2, (1, 5, Side.GOOD)), targets=(2, 6)) == 0


def test_the_wolf_king_shoots_the_seer_or_another_good_seat_and_never_a_mate():
    seer, mate = claim(4, (1, 2, Side.WOLF)), claim(2, (1, 4, Side.WOLF))
    assert answers(seen(1, Role.WOLF_KING, Decision.SHOT, team(1, 2, 3), seer, mate)) == {4}
    assert answers(seen(1, Role.WOLF_KING, Decision.SHOT, team(1, 2, 3), mate), 100) == {4, 5, 6, 7, 8, 9}


def test_a_wolf_sheriff_passes_the_badge_to_a_mate_that_nobody_named():
    told = (team(1, 2, 3), claim(4, (1, 2, Side.WOLF)))
    assert answers(seen(1, Role.WOLF, Decision.BADGE, *told, living=NINE_SEATS[1:])) == {3}
    assert answers(seen(1, Role.WOLF, Decision.BADGE, *told, living=(2, 4, 5))) == {2}
    assert answers(seen(1, Role.WOLF, Decision.BADGE, *told, living=(4, 5))) == {None}
