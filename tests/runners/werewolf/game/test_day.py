"""The day after its deaths: speaking orders, 归票, the exile vote with the sheriff's 1.5, and its PK."""

import pytest

from runners.werewolf.game import (
    Action,
    Decision,
    EventKind,
    GameState,
    IllegalAction,
    Option,
    Phase,
    apply,
    legal,
    new_game,
    pending,
)
from tests.support.game.game_playing import SEVEN, TINY, deck
from tests.support.game.game_scripts import all_of, asked, kinds, last, play, question, twelve, until

SHERIFF_6 = "sign_up: 6=run\ncampaign:"
TINY_DEAL = deck(wolf=1, seer=1, villager=3)


def order(state: GameState) -> tuple[int, ...]:
    return last(state, EventKind.SPEAKING_ORDER).seats


def seven(script: str) -> GameState:
    """1 and 2 wolves, 3 seer, 4 to 7 villagers; nobody has a badge."""
    return play(new_game(SEVEN, 0, deck(wolf=2, seer=1, villager=4)), script)


def exiled(state: GameState) -> list[int | None]:
    return [event.target for event in all_of(state, EventKind.EXILED)]


# --- speaking orders --------------------------------------------------------------------------------------------------


def test_without_a_sheriff_the_order_is_drawn_round_the_table_both_ways_and_from_every_seat():
    orders = {order(play(new_game(TINY, seed, TINY_DEAL), "night_actions: 1=pass")) for seed in range(200)}
    rising = {tuple((start + step) % 5 + 1 for step in range(5)) for start in range(5)}
    falling = {tuple((start - step) % 5 + 1 for step in range(5)) for start in range(5)}
    assert orders == rising | falling


def test_without_a_sheriff_the_dead_are_left_out_and_the_order_differs_from_day_to_day():
    state = seven("night_actions: 1,2=4\nexile_vote:\nexile_vote:")
    orders = [event.seats for event in all_of(state, EventKind.SPEAKING_ORDER)]
    assert all(set(seats) == {1, 2, 3, 5, 6, 7} for seats in orders[:2])
    days = {seed: play(new_game(SEVEN, seed), "discussion:\ndiscussion:") for seed in range(10)}
    assert any(len({event.seats for event in all_of(state, EventKind.SPEAKING_ORDER)}) == 2 for state in days.values())


NOBODY_DIES = "night_actions:\nwitch_action:"
EIGHT_DIES = "night_actions: 9,10,11,12=8\nwitch_action:"
TWO_DIE = "night_actions: 9,10,11,12=8\nwitch_action: 2=7"


@pytest.mark.parametrize(
    ("night", "way", "expected"),
    [
        (NOBODY_DIES, "sheriff_left", (7, 8, 9, 10, 11, 12, 1, 2, 3, 4, 5, 6)),
        (NOBODY_DIES, "sheriff_right", (5, 4, 3, 2, 1, 12, 11, 10, 9, 8, 7, 6)),
        (TWO_DIE, "sheriff_left", (9, 10, 11, 12, 1, 2, 3, 4, 5, 6)),
        (TWO_DIE, "sheriff_right", (5, 4, 3, 2, 1, 12, 11, 10, 9, 6)),
        (EIGHT_DIES, "dead_left", (9, 10, 11, 12, 1, 2, 3, 4, 5, 7, 6)),
        (EIGHT_DIES, "dead_right", (7, 5, 4, 3, 2, 1, 12, 11, 10, 9, 6)),
    ],
)
def test_the_sheriff_picks_the_order_and_speaks_last(night, way, expected):
    state = until(twelve(f"{night}\n{SHERIFF_6}"), Phase.SPEAKING_ORDER)
    assert asked(state) == [6]
    assert Option(way) in question(state, 6).options and len(question(state, 6).options) == 2
    assert not question(state, 6).may_pass and question(state, 6).targets == ()
    state = play(state, f"speaking_order: 6={way}")
    announced = last(state, EventKind.SPEAKING_ORDER)
    assert (announced.seat, announced.data["way"], announced.audience) == (6, way, None)
    assert announced.seats == expected
    spoken = []
    while state.phase is Phase.DISCUSSION:
        spoken += asked(state)
        state = apply(state, {asked(state)[0]: Action(text="嗯")})
    assert tuple(spoken) == expected


@pytest.mark.parametrize(
    ("script", "offered"),
    [
        (NOBODY_DIES, (Option.SHERIFF_LEFT, Option.SHERIFF_RIGHT)),
        (EIGHT_DIES, (Option.DEAD_LEFT, Option.DEAD_RIGHT)),
        (TWO_DIE, (Option.SHERIFF_LEFT, Option.SHERIFF_RIGHT)),
    ],
)
def test_one_death_of_the_night_is_gone_round_from_else_the_sheriff(script, offered):
    state = until(twelve(f"{script}\n{SHERIFF_6}"), Phase.SPEAKING_ORDER)
    assert question(state, 6).options == offered and question(state, 6).default.choice in offered


def test_a_sheriff_that_died_alone_is_where_its_successor_starts_from():
    state = twelve(f"night_actions: 9,10,11,12=6\n{SHERIFF_6}\nbadge: 6=8\nspeaking_order: 8=dead_left")
    assert order(state) == (7, 9, 10, 11, 12, 1, 2, 3, 4, 5, 8)


def test_who_was_shot_in_the_morning_is_no_death_of_the_night_and_does_not_speak():
    state = twelve(f"night_actions: 9,10,11,12=3\n{SHERIFF_6}\nshot: 3=4\nspeaking_order: 6=dead_left")
    assert order(state) == (5, 7, 8, 9, 10, 11, 12, 1, 2, 6)


# --- discussion -------------------------------------------------------------------------------------------------------


def test_the_sheriff_closes_the_discussion_and_may_name_whom_it_wants_exiled():
    state = twelve(f"{SHERIFF_6}\nspeaking_order:")
    while asked(state) != [6]:
        assert question(state, asked(state)[0]).decision is Decision.SPEECH
        state = apply(state, {asked(state)[0]: Action()})
    request = question(state, 6)
    assert (request.decision, request.may_pass, request.speaks) == (Decision.CLOSING_SPEECH, True, True)
    assert request.targets == (1, 2, 3, 4, 5, 7, 8, 9, 10, 11, 12)
    for choice in (9, None):
        closing = last(apply(state, {6: Action(choice, "听我的")}), EventKind.CLOSING_SPEECH)
        assert (closing.seat, closing.target, closing.text, closing.audience) == (6, choice, "听我的", None)


def test_a_speech_longer_than_is_heard_is_refused():
    state = until(seven(""), Phase.DISCUSSION)
    (request,) = pending(state)
    assert legal(request, Action(text="好" * request.speech_chars))
    with pytest.raises(IllegalAction, match="speech of at most 200 characters"):
        apply(state, {request.seat: Action(text="好" * (request.speech_chars + 1))})


# --- exile vote -------------------------------------------------------------------------------------------------------


def test_all_living_seats_vote_at_once_for_another_or_for_nobody():
    state = seven("night_actions: 1,2=4\ndiscussion:")
    assert asked(state) == [1, 2, 3, 5, 6, 7]
    assert question(state, 3).targets == (1, 2, 5, 6, 7) and question(state, 3).may_pass
    state = play(state, "exile_vote: 1,2=5 3=1")
    votes = [(event.seat, event.target) for event in all_of(state, EventKind.VOTE)]
    assert votes == [(1, 5), (2, 5), (3, 1), (5, None), (6, None), (7, None)]
    assert last(state, EventKind.VOTE_COUNT).data == {"count": "5:2,1:1"} and exiled(state) == [5]


def test_without_a_sheriff_all_votes_weigh_the_same():
    state = seven("exile_vote: 1=5 2=5 3=1 4=1 6=1")
    assert last(state, EventKind.VOTE_COUNT).data == {"count": "1:3,5:2"} and exiled(state) == [1]


def test_an_abstention_shifts_no_weight_to_another_seat():
    """5, just before the sheriff, abstains; 6 alone has the weight."""
    state = twelve(f"{SHERIFF_6}\nexile_vote: 4,7=9 6=8 5=pass")
    assert last(state, EventKind.VOTE_COUNT).data == {"count": "9:2,8:1.5"}


def test_the_weight_goes_with_the_badge():
    state = twelve(f"{SHERIFF_6}\nexile_vote: 1,2=6\nbadge: 6=7\nexile_vote: 7=9 1=8")
    assert last(state, EventKind.VOTE_COUNT).data == {"count": "9:1.5,8:1"}
    state = twelve(f"{SHERIFF_6}\nexile_vote: 1,2=6\nbadge: 6=pass\nexile_vote: 7=9 1=8")
    assert last(state, EventKind.VOTE_TIED).data == {"seats": "8,9"}


# --- PK ---------------------------------------------------------------------------------------------------------------


def test_a_tie_leads_to_pk_speeches_of_the_tied_and_a_vote_of_the_others():
    state = seven("night_actions: 1,2=4\nexile_vote: 1,2=3 3,5=1")
    assert last(state, EventKind.VOTE_TIED).data == {"seats": "1,3"}
    assert state.phase is Phase.PK_SPEECH and sorted(state.waiting) == [1, 3]
    state = play(state, "pk_speech: 1,3=「不是我」")
    assert sorted(event.seat for event in all_of(state, EventKind.PK_SPEECH)) == [1, 3]
    assert asked(state) == [2, 5, 6, 7]
    assert all(question(state, seat).targets == (1, 3) for seat in asked(state))
    assert exiled(play(state, "pk_vote: 2=3")) == [3]


def test_who_starts_the_pk_is_drawn():
    starts = set()
    for seed in range(20):
        state = play(new_game(SEVEN, seed, deck(wolf=2, seer=1, villager=4)), "exile_vote: 1,2=3 3,5=1")
        starts.add(state.waiting)
    assert starts == {(1, 3), (3, 1)}


def test_all_abstaining_exiles_nobody_without_a_pk():
    state = seven("exile_vote:")
    assert EventKind.NOBODY_EXILED in kinds(state) and EventKind.VOTE_TIED not in kinds(state)
    assert last(state, EventKind.VOTE_COUNT).data == {"count": ""} and state.day == 2


def test_a_tie_of_all_living_seats_exiles_nobody():
    state = play(new_game(TINY, 0, TINY_DEAL), "night_actions: 1=3\nexile_vote: 1=2 2=4 4=5 5=1")
    assert kinds(state).count(EventKind.VOTE_TIED) == 1 and EventKind.PK_SPEECH not in kinds(state)
    assert EventKind.NOBODY_EXILED in kinds(state) and state.day == 2
