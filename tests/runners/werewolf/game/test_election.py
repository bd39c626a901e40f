"""The sheriff's election on day 1, rule by rule. Explosions during it: test_explosion."""

import pytest

from runners.werewolf.game import BadgeLost, Decision, EventKind, IllegalAction, Option, Phase, new_game
from tests.support.game.game_playing import NINE
from tests.support.game.game_scripts import all_of, asked, kinds, last, play, question, twelve, until

EVERY_SEAT = "1,2,3,4,5,6,7,8,9,10,11,12"


def votes(state, kind=EventKind.SHERIFF_VOTE):
    return {event.seat: event.target for event in all_of(state, kind)}


def test_every_seat_is_asked_at_once_whether_it_runs():
    state = until(twelve(""), Phase.SIGN_UP)
    assert asked(state) == [*range(1, 13)]
    request = question(state, 5)
    assert (request.decision, request.targets, request.options, request.may_pass) == (
        Decision.SIGN_UP,
        (),
        (Option.RUN,),
        True,
    )
    state = play(state, "sign_up: 5,1,9=run")
    assert last(state, EventKind.SIGNED_UP).data == {"seats": "1,5,9"}
    assert last(state, EventKind.SIGNED_UP).audience is None


def test_there_is_one_election_and_only_where_the_preset_has_a_sheriff():
    assert EventKind.SIGNED_UP not in kinds(until(new_game(NINE, 0), Phase.EXILE_VOTE))
    state = until(twelve("sign_up: 1,5=run\nexile_vote:"), Phase.EXILE_VOTE)
    assert state.day == 2 and len(all_of(state, EventKind.SIGNED_UP)) == 1


def test_the_election_comes_before_the_announcement():
    state = until(twelve("night_actions: 9,10,11,12=5\nsign_up: 1,5=run\nsheriff_vote: 2,3=1"), Phase.DISCUSSION)
    shown = kinds(state, since=EventKind.DAY_BREAKS)
    assert shown.index(EventKind.SHERIFF_ELECTED) < shown.index(EventKind.DEATHS_ANNOUNCED)


def test_candidates_speak_once_each_in_a_drawn_order():
    orders = set()
    for seed in range(60):
        state = twelve("sign_up: 1,5,9,12=run\ncampaign: 1,5,9,12=「选我」", seed)
        orders.add(tuple(event.seat for event in all_of(state, EventKind.CAMPAIGN_SPEECH)))
    assert orders == {
        *((1, 5, 9, 12), (5, 9, 12, 1), (9, 12, 1, 5), (12, 1, 5, 9)),
        *((12, 9, 5, 1), (9, 5, 1, 12), (5, 1, 12, 9), (1, 12, 9, 5)),
    }


def test_a_campaign_speech_offers_to_withdraw():
    state = twelve("sign_up: 1,5=run")
    (seat,) = asked(state)
    assert question(state, seat).options == (Option.WITHDRAW,) and question(state, seat).speaks


def test_a_withdrawal_comes_after_the_speech_which_is_heard():
    state = twelve("sign_up: 1,5,6=run\ncampaign: 5=withdraw「过，退水」")
    (speech,) = [event for event in all_of(state, EventKind.CAMPAIGN_SPEECH) if event.seat == 5]
    assert speech.text == "过，退水"
    (withdrawal,) = all_of(state, EventKind.WITHDREW)
    assert withdrawal.seat == 5 and withdrawal.audience is None
    assert state.events.index(withdrawal) == state.events.index(speech) + 1


def test_seats_that_never_signed_up_vote_for_those_that_still_run():
    state = twelve("sign_up: 1,5,6,9=run\ncampaign: 6=withdraw\nwithdrawal:")
    assert asked(state) == [2, 3, 4, 7, 8, 10, 11, 12]
    request = question(state, 2)
    assert (request.decision, request.targets, request.may_pass) == (Decision.SHERIFF_VOTE, (1, 5, 9), True)
    with pytest.raises(IllegalAction, match="seat 2 may not answer sheriff_vote"):
        play(state, "sheriff_vote: 2=6")


def test_most_votes_elect_the_sheriff():
    state = twelve("sign_up: 1,5=run\nsheriff_vote: 2,3,4=1 6,7=5 8=pass")
    assert votes(state) == {2: 1, 3: 1, 4: 1, 6: 5, 7: 5, 8: None, 9: None, 10: None, 11: None, 12: None}
    assert last(state, EventKind.VOTE_COUNT).data == {"count": "1:3,5:2"}
    assert last(state, EventKind.SHERIFF_ELECTED).target == 1 and state.sheriff == 1
    assert kinds(state, since=EventKind.VOTE_COUNT)[:3] == [
        EventKind.VOTE_COUNT,
        EventKind.SHERIFF_ELECTED,
        EventKind.DEATHS_ANNOUNCED,
    ]


@pytest.mark.parametrize(
    "script",
    [
        "sign_up: 5=run\nunopposed:",
        "sign_up: 1,5,9=run\ncampaign: 1,9=withdraw\nunopposed:",
        "sign_up: 1,5,9=run\ncampaign: 1=withdraw\nwithdrawal: 9=withdraw\nunopposed:",
    ],
)
def test_a_candidate_without_rivals_is_elected_without_a_vote(script):
    state = twelve(script)
    assert state.sheriff == 5 and votes(state) == {}
    assert 5 in {event.seat for event in all_of(state, EventKind.CAMPAIGN_SPEECH)}


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("sign_up:", BadgeLost.NOBODY_RUNS),
        ("sign_up: 1,5=run\ncampaign: 1,5=withdraw", BadgeLost.NOBODY_RUNS),
        ("sign_up: 1,5=run\nwithdrawal: 1,5=withdraw", BadgeLost.NOBODY_RUNS),
        (f"sign_up: {EVERY_SEAT}=run\nwithdrawal:", BadgeLost.NO_VOTERS),
        (f"sign_up: {EVERY_SEAT}=run\ncampaign: 1,2,3=withdraw\nwithdrawal:", BadgeLost.NO_VOTERS),
        ("sign_up: 1,5=run\nsheriff_vote:", BadgeLost.NO_VOTES),
        ("sign_up: 1,5=run\nsheriff_vote: 2=1 3=5\nsheriff_pk_vote:", BadgeLost.NO_VOTES),
        ("sign_up: 1,5=run\nsheriff_vote: 2=1 3=5\nsheriff_pk_vote: 9=1 10=5", BadgeLost.TIED_TWICE),
    ],
)
def test_the_badge_is_lost(script, reason):
    state = twelve(script)
    assert last(state, EventKind.BADGE_LOST).data == {"reason": reason} and state.sheriff is None
    assert EventKind.SHERIFF_ELECTED not in kinds(state)
    state = until(state, Phase.DISCUSSION)
    assert last(state, EventKind.SPEAKING_ORDER).data["way"] == ""
    assert until(play(state, "exile_vote:"), Phase.EXILE_VOTE).sheriff is None


def test_where_every_seat_signed_up_and_one_is_left_it_is_elected():
    state = twelve(f"sign_up: {EVERY_SEAT}=run\nwithdrawal: 1,2,3,4,5,6,7,8,9,10,11=withdraw")
    assert state.sheriff == 12


def test_a_tie_puts_the_tied_alone_on_the_pk_stage():
    state = twelve("sign_up: 1,5,9=run\nsheriff_vote: 2,3=1 4,6=5 7=9")
    assert last(state, EventKind.VOTE_TIED).data == {"seats": "1,5"}
    assert state.phase is Phase.SHERIFF_PK_SPEECH
    state = play(state, "sheriff_pk_speech: 1,5=「再选我」")
    assert sorted(event.seat for event in all_of(state, EventKind.SHERIFF_PK_SPEECH)) == [1, 5]
    assert all(event.text == "再选我" for event in all_of(state, EventKind.SHERIFF_PK_SPEECH))


def test_all_living_seats_not_on_the_pk_stage_vote_in_the_second_ballot():
    """Those who withdrew and those who fell behind included."""
    state = twelve("sign_up: 1,5,6,9=run\ncampaign: 6=withdraw\nsheriff_vote: 2,3=1 4,7=5\nsheriff_pk_speech:")
    assert asked(state) == [2, 3, 4, 6, 7, 8, 9, 10, 11, 12]
    assert all(question(state, seat).targets == (1, 5) for seat in asked(state))
    assert play(state, "sheriff_pk_vote: 6=5").sheriff == 5


def test_all_votes_weigh_the_same_in_the_election():
    state = twelve("sign_up: 1,5=run\nsheriff_vote: 2=1 3=5\nsheriff_pk_vote: 2,3=5 4,6,7=1")
    assert last(state, EventKind.VOTE_COUNT).data == {"count": "1:3,5:2"} and state.sheriff == 1


def test_where_nobody_may_abstain_a_seat_votes_for_a_drawn_candidate_by_default():
    state = twelve("sign_up: 5,1=run\nwithdrawal:", may_abstain=False)
    assert not any(question(state, seat).may_pass for seat in asked(state))
    assert {question(state, seat).default.choice for seat in asked(state)} == {1, 5}


# --- last night's dead take part exactly as if they were alive --------------------------------------------------------


def test_last_nights_dead_vote_in_both_ballots():
    state = twelve("night_actions: 9,10,11,12=5\nwitch_action: 2=6\nsign_up: 1,7=run\nwithdrawal:")
    assert asked(state) == [2, 3, 4, 5, 6, 8, 9, 10, 11, 12]
    state = play(state, "sheriff_vote: 5=1 6=7\nsheriff_pk_speech:")
    assert asked(state) == [2, 3, 4, 5, 6, 8, 9, 10, 11, 12]
    state = play(state, "sheriff_pk_vote: 5,6=7 2=1")
    assert state.sheriff == 7 and last(state, EventKind.DEATHS_ANNOUNCED).seats == (5, 6)


def test_last_nights_dead_may_stand_on_the_pk_stage():
    state = twelve("night_actions: 9,10,11,12=5\nsign_up: 5,1=run\nsheriff_vote: 2=1 3=5\nsheriff_pk_speech: 5=「我」")
    assert state.phase is Phase.SHERIFF_PK_VOTE and question(state, 2).targets == (1, 5)
