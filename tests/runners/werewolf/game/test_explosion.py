"""自爆: what an explosion breaks off, what still happens, and the election put off or swallowed by it."""

import pytest

from runners.werewolf.game import (
    Action,
    BadgeLost,
    Decision,
    EventKind,
    IllegalAction,
    Option,
    Phase,
    Result,
    known_events,
    new_game,
    observe,
    pending,
    winner,
)
from tests.support.game.game_playing import NINE
from tests.support.game.game_scripts import all_of, asked, kinds, last, play, question, step, twelve, until

CAMPAIGN = "sign_up: 1,9=run\ncampaign: 9=explode"
"""Wolf 9 runs and explodes; candidate 1 is left."""

TO_VOTE = "sign_up: 1,5=run\nsheriff_vote: 2,3=1\nspeaking_order: 1=sheriff_left\ndiscussion:"
"""Seer 1 is sheriff, the discussion is over."""

EXPLOSIONS = {
    "campaign speech": CAMPAIGN,
    "withdrawal": "sign_up: 1,9=run\nwithdrawal: 1=withdraw 9=explode",
    "after withdrawing": "sign_up: 1,5,9=run\ncampaign: 9=withdraw\nwithdrawal: 9=explode",
    "lone candidate": "sign_up: 1=run\nunopposed: 9=explode",
    "sheriff vote": "sign_up: 1,5=run\nsheriff_vote: 2,3=1 9=explode",
    "sheriff PK speech": "sign_up: 1,9=run\nsheriff_vote: 2=1 3=9\nsheriff_pk_speech: 9=explode",
    "sheriff PK vote": "sign_up: 1,5=run\nsheriff_vote: 2=1 3=5\nsheriff_pk_vote: 2,3,4=1 9=explode",
    "sheriff PK vote, on the stage": "sign_up: 1,9=run\nsheriff_vote: 2=1 3=9\nsheriff_pk_vote: 2,3,4=1 9=explode",
    "discussion": "discussion: 9=explode",
    "归票": "sign_up: 9=run\ndiscussion: 9=explode",
    "exile vote": "exile_vote: 1,2,3=4 9=explode",
    "exile PK speech": "exile_vote: 1,2=9 3,4=5\npk_speech: 9=explode",
    "exile PK vote": "exile_vote: 1,2=6 3,4=5\npk_vote: 1,2,3=5 9=explode",
    "exile PK vote, on the stage": "exile_vote: 1,2=9 3,4=5\npk_vote: 1,2,3=5 9=explode",
}


@pytest.mark.parametrize("script", EXPLOSIONS.values(), ids=EXPLOSIONS.keys())
def test_an_explosion_ends_the_day_and_night_follows(script):
    state = until(twelve(script), Phase.NIGHT_ACTIONS)
    assert state.day == 2 and 9 not in state.living and len(state.living) == 11
    (exploded,) = all_of(state, EventKind.EXPLODED)
    assert (exploded.seat, exploded.audience, exploded.day) == (9, None, 1)
    after = set(kinds(state, since=EventKind.EXPLODED))
    assert not after & {EventKind.LAST_WORDS, EventKind.VOTE, EventKind.SHERIFF_VOTE, EventKind.EXILED, EventKind.SHOT}
    assert not after & {EventKind.NOBODY_EXILED, EventKind.SPEECH, EventKind.SHERIFF_ELECTED, EventKind.WITHDREW}
    assert state.tied == () and state.waiting


@pytest.mark.parametrize("script", EXPLOSIONS.values(), ids=EXPLOSIONS.keys())
def test_every_day_has_one_announcement_also_when_it_is_broken_off(script):
    state = until(twelve("night_actions: 9,10,11,12=8\n" + script), Phase.NIGHT_ACTIONS)
    assert [event.seats for event in all_of(state, EventKind.DEATHS_ANNOUNCED)] == [(8,)]
    assert [event.seat for event in all_of(state, EventKind.LAST_WORDS)] == [8]
    shown = kinds(state)
    in_election = state.election is not None and state.election.put_off
    assert (shown.index(EventKind.EXPLODED) < shown.index(EventKind.DEATHS_ANNOUNCED)) is in_election


def test_what_an_exploding_wolf_said_in_the_same_breath_is_not_heard():
    state = twelve("discussion: 9=explode「我是狼人」")
    assert "我是狼人" not in {event.text for event in state.events}


OFFERS = {
    Decision.CAMPAIGN_SPEECH: "sign_up: 9,12=run",
    Decision.WITHDRAWAL: "sign_up: 9,12=run\ncampaign:",
    Decision.SHERIFF_VOTE: "sign_up: 1,5=run\nwithdrawal:",
    Decision.SHERIFF_PK_SPEECH: "sign_up: 9,12=run\nsheriff_vote: 1=9 2=12",
    Decision.SHERIFF_PK_VOTE: "sign_up: 1,5=run\nsheriff_vote: 2=1 3=5\nsheriff_pk_speech:",
    Decision.SPEECH: "sign_up:",
    Decision.EXILE_VOTE: "discussion:",
    Decision.PK_SPEECH: "exile_vote: 1=9 2=12",
    Decision.PK_VOTE: "exile_vote: 1,2=6 3,4=5\npk_speech:",
}


ALONE = {
    "sign_up: 1,9,12=run\ncampaign: 9,12=withdraw": {9, 12},
    "sign_up: 1,9=run\nwithdrawal: 9=withdraw": {10, 11, 12},  # 9 was asked just now
    "sign_up: 9,12=run\nsheriff_vote: 1=9 2=12\nsheriff_pk_speech:": {9, 12},
    "exile_vote: 1=9 2=12\npk_speech:": {9, 12},
    "sign_up: 1,5,9,12=run\nsheriff_vote: 11=explode\nnight_actions:\nwitch_action:": {9, 12},
    "sign_up: 1,9,12=run\ncampaign: 9,12=withdraw\nunopposed: 11=explode\nnight_actions:\nwitch_action:": {9, 10, 12},
}


@pytest.mark.parametrize(("script", "wolves"), ALONE.items())
@pytest.mark.parametrize("king", [False, True])
def test_wolves_that_have_no_other_question_are_asked_on_their_own_before_a_sheriff_or_a_vote(script, wolves, king):
    state = twelve(script, wolf_king_may_explode=king)
    alone = {r.seat: r for r in pending(state) if r.decision is Decision.EXPLOSION}
    assert alone.keys() == wolves - (set() if king else {12})
    for request in alone.values():
        assert (request.options, request.targets, request.may_pass) == ((Option.EXPLODE,), (), True)
        assert not request.speaks and request.default == Action()
        assert request.subject == (1 if state.phase is Phase.UNOPPOSED else None)
    # In the round that is asked anyway, so that nobody can tell that they were.
    assert state.phase is Phase.UNOPPOSED or len(pending(state)) > len(alone)
    assert EventKind.EXPLODED not in kinds(step(state), since=EventKind.DAY_BREAKS)


@pytest.mark.parametrize("script", ["sign_up: 1=run\nwithdrawal:", f"{CAMPAIGN}\nnight_actions:\nwitch_action:"])
def test_that_wolves_are_asked_before_a_lone_candidate_is_elected_shows_to_nobody_else(script):
    state = twelve(script)
    assert state.phase is Phase.UNOPPOSED
    seen = {(view.phase, view.request) for seat in (1, 5, 12) if (view := observe(state, seat))}
    assert seen == {(Phase.NIGHTFALL if state.day == 2 else Phase.WITHDRAWAL, None)}
    assert {known_events(state, 5)[-1].kind} <= {EventKind.CAMPAIGN_SPEECH, EventKind.NIGHT_FALLS}


@pytest.mark.parametrize(("decision", "script"), OFFERS.items())
@pytest.mark.parametrize("king", [False, True])
def test_wolves_are_offered_to_explode_with_every_speech_and_vote_by_day(decision, script, king):
    state = twelve(script, wolf_king_may_explode=king)
    offered, seen = set(), set()
    while pending(state)[0].decision is decision:
        requests = pending(state)
        seen |= {request.seat for request in requests}
        offered |= {request.seat for request in requests if Option.EXPLODE in request.options}
        state = step(state)
    wolves = {9, 10, 11, 12} if king else {9, 10, 11}
    assert {9, 12} <= seen and offered == seen & wolves


def test_where_wolves_may_not_explode_none_is_offered():
    state = until(new_game(NINE, 0), Phase.EXILE_VOTE)
    assert all(request.options == () for request in pending(state))
    state = until(twelve("", wolves_may_explode=False, wolf_king_may_explode=True), Phase.EXILE_VOTE)
    assert all(request.options == () for request in pending(state))
    with pytest.raises(IllegalAction, match="seat 9 may not answer exile_vote"):
        play(state, "exile_vote: 9=explode")


def test_of_several_that_explode_at_once_a_drawn_one_does():
    exploded = []
    for seed in range(60):
        state = twelve("exile_vote: 9,10,11=explode", seed)
        (event,) = all_of(state, EventKind.EXPLODED)
        exploded.append(event.seat)
        assert state.living == set(range(1, 13)) - {event.seat}
    assert {seat: exploded.count(seat) > 8 for seat in (9, 10, 11)} == {9: True, 10: True, 11: True}


def test_a_wolf_king_that_explodes_does_not_shoot():
    state = twelve("discussion: 12=explode", wolf_king_may_explode=True)
    assert state.day == 2 and 12 not in state.living
    with pytest.raises(IllegalAction, match="seat 12 may not answer"):
        twelve("exile_vote: 12=explode")


def test_a_win_by_explosion_ends_the_game():
    state = twelve(
        "exile_vote: 9=explode\nexile_vote: 10=explode\nexile_vote: 12=explode\nexile_vote: 11=explode",
        wolf_king_may_explode=True,
    )
    assert winner(state) is Result.GOOD and kinds(state)[-2:] == [EventKind.EXPLODED, EventKind.GAME_OVER]


# --- the election broken off ------------------------------------------------------------------------------------------


def test_an_explosion_in_the_election_puts_it_off_and_announces_the_nights_deaths():
    state = twelve("night_actions: 9,10,11,12=3\nsign_up: 1,9=run\ncampaign: 9=explode")
    assert kinds(state, since=EventKind.EXPLODED) == [
        EventKind.EXPLODED,
        EventKind.ELECTION_PUT_OFF,
        EventKind.DEATHS_ANNOUNCED,
    ]
    assert last(state, EventKind.DEATHS_ANNOUNCED).seats == (3,)
    assert (state.phase, asked(state)) == (Phase.LAST_WORDS, [3])
    state = play(state, "last_words:")
    assert (state.phase, asked(state)) == (Phase.SHOT, [3])
    state = play(state, "shot: 3=10")
    assert state.day == 2 and state.living == set(range(1, 13)) - {3, 9, 10}


def test_a_wolf_that_died_last_night_may_explode_too_and_gives_its_last_words_away():
    state = twelve("night_actions: 9,10,11,12=9\nwitch_action: 2=5\nsign_up: 1,9=run\ncampaign: 9=explode")
    assert last(state, EventKind.DEATHS_ANNOUNCED).seats == (5, 9)
    state = play(state, "last_words: 5=「再见」")
    assert [event.seat for event in all_of(state, EventKind.LAST_WORDS)] == [5]
    assert state.day == 2 and state.living == set(range(1, 13)) - {5, 9}


def test_who_withdrew_before_the_explosion_neither_runs_nor_votes_the_next_day():
    state = twelve("sign_up: 1,5,6=run\ncampaign: 6=withdraw\nsheriff_vote: 9=explode\nnight_actions:\nwitch_action:")
    assert state.phase is Phase.SHERIFF_VOTE and question(state, 2).targets == (1, 5) and 6 not in asked(state)


def test_the_tie_before_an_explosion_in_the_pk_is_forgotten_the_next_day():
    script = "sign_up: 1,5,6=run\nsheriff_vote: 2=1 3=5\nsheriff_pk_vote: 9=explode\nnight_actions:\nwitch_action:"
    state = twelve(script)
    assert state.phase is Phase.SHERIFF_VOTE and question(state, 2).targets == (1, 5, 6)
    assert asked(state) == [2, 3, 4, 7, 8, 10, 11, 12]


def test_a_candidate_that_was_killed_meanwhile_runs_until_its_death_is_announced():
    state = twelve("sign_up: 1,5,9=run\ncampaign: 9=explode\nnight_actions: 10,11,12=5\nsheriff_vote: 2,3=5")
    assert state.sheriff == 5 and last(state, EventKind.DEATHS_ANNOUNCED).seats == (5,)
    assert (state.phase, asked(state)) == (Phase.BADGE, [5])  # no last words after the first night


def test_a_candidate_that_was_announced_dead_meanwhile_no_longer_runs():
    state = twelve(
        "night_actions: 9,10,11,12=5\nsign_up: 1,5,6,9=run\ncampaign: 9=explode\nnight_actions:\nwitch_action:"
    )
    assert question(state, 2).targets == (1, 6)


def test_a_candidate_that_is_left_alone_is_elected_without_a_vote_the_next_day():
    state = twelve(f"{CAMPAIGN}\nnight_actions:\nwitch_action:\nunopposed:")
    assert state.day == 2 and state.sheriff == 1 and all_of(state, EventKind.SHERIFF_VOTE) == []


def test_without_a_candidate_left_the_badge_is_lost_and_the_day_goes_on():
    state = twelve("sign_up: 9=run\ncampaign: 9=explode\nnight_actions:\nwitch_action:")
    assert last(state, EventKind.BADGE_LOST).data == {"reason": BadgeLost.NOBODY_RUNS}
    assert state.day == 2 and state.phase is Phase.DISCUSSION


def test_an_explosion_after_the_put_off_vote_swallows_nothing():
    state = twelve("sign_up: 1,5,9=run\ncampaign: 9=explode\nsheriff_vote: 2=1\nexile_vote: 10=explode")
    assert state.day == 3 and state.sheriff == 1 and all_of(state, EventKind.BADGE_LOST) == []


def test_an_explosion_after_the_election_leaves_the_badge_where_it_is():
    for script in (f"{TO_VOTE}\nexile_vote: 9=explode", f"{TO_VOTE}\nexile_vote:\nexile_vote: 9=explode"):
        state = twelve(script)
        assert state.sheriff == 1 and all_of(state, EventKind.BADGE_LOST) == []


def test_an_explosion_in_the_discussion_of_a_day_without_election_puts_nothing_off():
    state = twelve("discussion: 9=explode", sheriff=False)
    assert all_of(state, EventKind.ELECTION_PUT_OFF) == [] and state.day == 2


# --- the badge of a sheriff that explodes -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "script",
    [
        "discussion: 9=explode",
        "exile_vote: 9=explode",
        "exile_vote: 1,2=9 3,4=5\npk_speech: 9=explode",
        "exile_vote: 1,2=6 3,4=5\npk_vote: 9=explode",
        "exile_vote:\nexile_vote: 9=explode",
    ],
    ids=["归票", "vote", "PK speech", "PK vote", "day 2"],
)
def test_a_sheriff_that_explodes_passes_or_tears_its_badge_before_night_falls(script):
    state = twelve(f"sign_up: 9=run\n{script}")
    day = state.day
    assert (state.phase, asked(state)) == (Phase.BADGE, [9])
    assert question(state, 9).targets == (1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12)
    passed, torn = play(state, "badge: 9=10"), play(state, "badge: 9=pass")
    assert (passed.sheriff, torn.sheriff) == (10, None)
    assert passed.day == torn.day == day + 1
    assert until(passed, Phase.SPEAKING_ORDER).waiting == (10,)
    assert kinds(torn)[-2:] == [EventKind.BADGE_TORN, EventKind.NIGHT_FALLS]
