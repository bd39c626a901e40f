"""Locks the course of a game, rule by rule, on chosen deals."""

import copy
from collections import Counter
from dataclasses import replace

import pytest
from game_playing import SEVEN, STRICT, TINY, answer_all

from runners.werewolf.game import (
    Action,
    Decision,
    EventKind,
    GameState,
    IllegalAction,
    Phase,
    Result,
    Role,
    Side,
    WinRule,
    apply,
    check,
    deal,
    get_preset,
    new_game,
    observe,
    pending,
    winner,
)
from runners.werewolf.game.rules import outcome

W, S, V = Role.WOLF, Role.SEER, Role.VILLAGER
TINY_DEAL = (W, S, V, V, V)
SEVEN_DEAL = (W, W, S, V, V, V, V)


def kinds(state: GameState) -> list[EventKind]:
    return [event.kind for event in state.events]


def last(state: GameState, kind: EventKind):
    return next(event for event in reversed(state.events) if event.kind is kind)


def night(state: GameState, victim: int | None, checked: int | None = None) -> GameState:
    """Let the wolves talk if they do, all choose ``victim``, and the seer check ``checked``."""
    while state.phase is Phase.WOLF_TALK:
        state = apply(state, answer_all(state, lambda request: Action(text="嗯")))
    target = {Decision.WOLF_KILL: victim, Decision.SEER_CHECK: checked}
    return apply(state, answer_all(state, lambda request: Action(target[request.decision])))


def talk(state: GameState) -> GameState:
    """Let everybody whose turn it is speak, up to the next choice."""
    while (requests := pending(state)) and requests[0].speaks:
        state = apply(state, {requests[0].seat: Action(text="过场")})
    return state


def vote(state: GameState, **votes: int | None) -> GameState:
    """``s3=1``: seat 3 votes for seat 1; seats not named abstain."""
    return apply(state, answer_all(state, lambda request: Action(votes.get(f"s{request.seat}"))))


def test_unknown_preset_names_the_valid_ones():
    with pytest.raises(ValueError, match=r"unknown preset '9p_typo'.*5p_tiny"):
        get_preset("9p_typo")


def test_the_deal_is_the_decks_and_depends_on_the_seed():
    deals = [deal(TINY, seed) for seed in range(50)]
    assert all(Counter(roles) == Counter(TINY.deck) for roles in deals)
    assert len(set(deals)) > 5
    assert new_game(TINY, 7).roles == deal(TINY, 7)


def test_a_given_deal_must_be_the_decks():
    with pytest.raises(ValueError, match="do not deal the deck of preset '5p_tiny'"):
        new_game(TINY, 0, roles=(W, W, S, V, V))


def test_a_lone_wolf_does_not_talk_and_wolf_and_seer_are_asked_at_once():
    state = new_game(TINY, 0, TINY_DEAL)
    assert [(r.seat, r.decision) for r in pending(state)] == [(1, Decision.WOLF_KILL), (2, Decision.SEER_CHECK)]
    assert pending(state)[0].targets == (2, 3, 4, 5)
    assert pending(state)[1].targets == (1, 3, 4, 5)


def test_wolves_talk_in_turn_and_only_wolves_hear():
    state = new_game(SEVEN, 3, SEVEN_DEAL)
    speakers = []
    while state.phase is Phase.WOLF_TALK:
        (request,) = pending(state)
        speakers.append(request.seat)
        assert observe(state, 4).phase is Phase.NIGHT_ACTIONS
        state = apply(state, {request.seat: Action(text="刀3号")})
    assert sorted(speakers) == [1, 1, 2, 2] and speakers[:2] == speakers[2:]
    assert last(state, EventKind.WOLF_SAYS).audience == {1, 2}
    assert [r.seat for r in pending(state)] == [1, 2, 3]


def test_a_wolf_left_alone_no_longer_talks():
    state = talk(night(new_game(SEVEN, 3, SEVEN_DEAL), None))
    state = talk(vote(state, s3=1))
    assert state.day == 2 and state.phase is Phase.NIGHT_ACTIONS


def test_first_night_death_is_announced_then_has_last_words_then_the_others_speak():
    state = night(new_game(TINY, 0, TINY_DEAL), victim=3, checked=1)
    assert kinds(state)[-3:] == [EventKind.SEER_RESULT, EventKind.DAY_BREAKS, EventKind.DEATHS_ANNOUNCED]
    assert last(state, EventKind.DEATHS_ANNOUNCED).data == {"seats": "3"}
    assert last(state, EventKind.SEER_RESULT).data == {"side": Side.WOLF}
    assert last(state, EventKind.SEER_RESULT).audience == {2}
    (request,) = pending(state)
    assert (request.seat, request.decision) == (3, Decision.LAST_WORDS)
    state = apply(state, {3: Action(text="再见")})
    spoken = []
    while state.phase is Phase.DISCUSSION:
        (request,) = pending(state)
        spoken.append(request.seat)
        state = apply(state, {request.seat: Action(text="嗯")})
    assert sorted(spoken) == [1, 2, 4, 5]
    assert [r.seat for r in pending(state)] == [1, 2, 4, 5]


def test_a_later_night_death_has_no_last_words():
    state = talk(night(new_game(SEVEN, 0, SEVEN_DEAL), None))
    state = night(talk(vote(state)), victim=4)
    assert state.day == 2 and state.phase is Phase.DISCUSSION and 4 not in state.living


def test_a_peaceful_night_is_announced_without_names():
    state = night(new_game(TINY, 0, TINY_DEAL), victim=None)
    assert last(state, EventKind.DEATHS_ANNOUNCED).data == {"seats": ""}
    assert last(state, EventKind.WOLF_TARGET).target is None
    assert state.phase is Phase.DISCUSSION


def test_speaking_orders_go_round_the_table_both_ways_and_from_every_seat():
    orders = {night(new_game(TINY, seed, TINY_DEAL), None).waiting for seed in range(200)}
    clockwise = {tuple((start + step) % 5 + 1 for step in range(5)) for start in range(5)}
    counter = {tuple((start - step) % 5 + 1 for step in range(5)) for start in range(5)}
    assert orders == clockwise | counter


def test_ties_among_wolves_fall_to_a_seeded_draw_between_the_tied():
    victims = set()
    for seed in range(40):
        state = new_game(SEVEN, seed, SEVEN_DEAL)
        while state.phase is Phase.WOLF_TALK:
            state = apply(state, answer_all(state, lambda request: Action()))
        actions = {1: Action(4), 2: Action(None), 3: Action(5)}
        assert apply(state, actions).events == apply(state, actions).events
        victims.add(last(apply(state, actions), EventKind.WOLF_TARGET).target)
    assert victims == {4, None}


def test_wolves_may_hit_their_own_only_where_the_preset_says_so():
    state = new_game(SEVEN, 0, SEVEN_DEAL)
    assert 2 not in night(state, victim=2).living
    with pytest.raises(IllegalAction):
        night(new_game(TINY, 0, TINY_DEAL), victim=1)


def test_the_exiled_seat_speaks_its_last_words_then_night_falls():
    state = vote(talk(night(new_game(SEVEN, 0, SEVEN_DEAL), 4)), s1=5, s2=5, s3=1)
    assert last(state, EventKind.EXILED).target == 5
    (request,) = pending(state)
    assert (request.seat, request.decision) == (5, Decision.LAST_WORDS)
    state = apply(state, {5: Action(text="再见")})
    assert state.day == 2 and kinds(state)[-1] is EventKind.NIGHT_FALLS


def test_all_abstaining_exiles_nobody_without_a_pk():
    state = vote(talk(night(new_game(SEVEN, 0, SEVEN_DEAL), 4)))
    assert EventKind.NOBODY_EXILED in kinds(state) and EventKind.VOTE_TIED not in kinds(state)
    assert state.day == 2


def test_a_tie_leads_to_pk_speeches_of_the_tied_and_a_vote_of_the_others():
    state = vote(talk(night(new_game(SEVEN, 0, SEVEN_DEAL), 4)), s1=3, s2=3, s3=1, s5=1)
    assert last(state, EventKind.VOTE_TIED).data == {"seats": "1,3"}
    assert state.phase is Phase.PK_SPEECH and sorted(state.waiting) == [1, 3]
    state = talk(state)
    assert [(r.seat, r.decision, r.targets) for r in pending(state)] == [
        (seat, Decision.PK_VOTE, (1, 3)) for seat in (2, 5, 6, 7)
    ]
    assert last(vote(state, s2=3), EventKind.EXILED).target == 3


@pytest.mark.parametrize("votes", [{"s2": 3, "s5": 1}, {}], ids=["second tie", "all abstain"])
def test_a_pk_without_a_clear_vote_exiles_nobody(votes):
    state = vote(talk(night(new_game(SEVEN, 0, SEVEN_DEAL), 4)), s1=3, s2=3, s3=1, s5=1)
    state = vote(talk(state), **votes)
    assert EventKind.NOBODY_EXILED in kinds(state) and EventKind.EXILED not in kinds(state)
    assert state.day == 2 and not state.tied


def test_a_tie_of_all_living_seats_exiles_nobody():
    state = vote(talk(night(new_game(TINY, 0, TINY_DEAL), 3)), s1=2, s2=4, s4=5, s5=1)
    assert kinds(state).count(EventKind.VOTE_TIED) == 1 and EventKind.PK_SPEECH not in kinds(state)
    assert EventKind.NOBODY_EXILED in kinds(state) and state.day == 2


def test_a_win_by_night_is_announced_before_the_game_ends():
    state = vote(talk(night(new_game(TINY, 0, TINY_DEAL), 3)), s1=4, s2=4)
    state = night(talk(state), victim=5)
    assert kinds(state)[-3:] == [EventKind.DAY_BREAKS, EventKind.DEATHS_ANNOUNCED, EventKind.GAME_OVER]
    assert last(state, EventKind.DEATHS_ANNOUNCED).data == {"seats": "5"}
    assert winner(state) is Result.WOLF and pending(state) == () and state.phase is Phase.GAME_OVER


def test_an_exile_that_decides_the_game_ends_it_without_last_words():
    state = vote(talk(night(new_game(TINY, 0, TINY_DEAL), 3)), s2=1)
    assert kinds(state)[-2:] == [EventKind.EXILED, EventKind.GAME_OVER]
    assert winner(state) is Result.GOOD
    assert last(state, EventKind.GAME_OVER).data == {"result": "good"}


def test_the_round_limit_is_a_draw_and_a_win_on_the_last_day_still_counts():
    state = new_game(TINY, 0, TINY_DEAL)
    while state.day < TINY.round_limit or state.phase is Phase.NIGHT_ACTIONS:
        state = night(state, None) if state.phase is Phase.NIGHT_ACTIONS else vote(talk(state))
    state = talk(state)
    assert winner(state) is None
    assert winner(vote(state)) is Result.DRAW
    assert winner(vote(state, s2=3)) is Result.DRAW
    assert winner(vote(state, s2=1)) is Result.GOOD


@pytest.mark.parametrize(
    ("rule", "living", "result"),
    [
        (WinRule.PARITY, (W, S, V), None),
        (WinRule.PARITY, (W, V), Result.WOLF),
        (WinRule.PARITY, (S, V), Result.GOOD),
        (WinRule.PARITY, (), Result.GOOD),
        (WinRule.WIPE_A_KIND, (W, S, V), None),
        (WinRule.WIPE_A_KIND, (W, V, V, V), Result.WOLF),
        (WinRule.WIPE_A_KIND, (W, S), Result.WOLF),
        (WinRule.WIPE_A_KIND, (S, V), Result.GOOD),
        (WinRule.WIPE_A_KIND, (V, V), Result.WOLF),  # both conditions hold: 狼刀在先
    ],
)
def test_who_has_won(rule, living, result):
    assert outcome(rule, TINY_DEAL, living) is result


def test_only_kinds_that_were_dealt_can_be_wiped_out():
    assert outcome(WinRule.WIPE_A_KIND, (W, V, V), (W, V)) is None


def test_where_nobody_may_pass_the_default_is_a_legal_seat():
    state = new_game(STRICT, 0)
    assert state.phase is Phase.NIGHT_ACTIONS
    for request in pending(state):
        if request.decision is Decision.WOLF_KILL:
            assert not request.may_pass and request.default.target == request.targets[0]
    state = talk(apply(state, answer_all(state, lambda request: request.default)))
    with pytest.raises(IllegalAction):
        vote(state)


def test_apply_leaves_the_given_state_as_it_was():
    state = new_game(SEVEN, 5)
    before = copy.deepcopy(state)
    apply(state, answer_all(state, lambda request: request.default))
    assert state == before


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        ({1: Action(3)}, r"missing: \[2\], not asked: \[\]"),
        ({1: Action(3), 2: Action(), 4: Action()}, r"missing: \[\], not asked: \[4\]"),
        ({}, r"missing: \[1, 2\]"),
        ({1: Action(1), 2: Action()}, r"seat 1 may not answer wolf_kill with Action\(target=1.*\[2, 3, 4, 5, None\]"),
        ({1: Action(9), 2: Action()}, "seat 1 may not"),
        ({1: Action(3, "杀"), 2: Action()}, "seat 1 may not.*no speech"),
        ({1: Action(3), 2: Action(2)}, "seat 2 may not answer seer_check"),
    ],
)
def test_wrong_actions_name_the_seat_and_what_is_legal(actions, message):
    with pytest.raises(IllegalAction, match=message):
        apply(new_game(TINY, 0, TINY_DEAL), actions)


def test_a_speech_has_no_target():
    state = night(new_game(TINY, 0, TINY_DEAL), None)
    (request,) = pending(state)
    with pytest.raises(IllegalAction, match="speech allowed"):
        check(request, Action(target=2))


def test_a_finished_game_takes_no_actions():
    state = vote(talk(night(new_game(TINY, 0, TINY_DEAL), 3)), s2=1)
    for actions in ({}, {1: Action()}):
        with pytest.raises(IllegalAction, match="the game is over"):
            apply(state, actions)


def test_observe_refuses_a_seat_that_does_not_exist():
    with pytest.raises(ValueError, match="no seat 6"):
        observe(new_game(TINY, 0), 6)


def test_the_same_observation_comes_back_until_the_seat_has_answered():
    state = new_game(TINY, 0, TINY_DEAL)
    assert observe(state, 1) == observe(state, 1)
    assert [event.kind for event in observe(state, 1).events] == [
        EventKind.GAME_START,
        EventKind.ROLE_DEALT,
        EventKind.WOLF_TEAM,
        EventKind.NIGHT_FALLS,
    ]
    after = night(state, 3)
    assert [event.kind for event in observe(after, 1).events] == [
        EventKind.WOLF_VOTE,
        EventKind.WOLF_TARGET,
        EventKind.DAY_BREAKS,
        EventKind.DEATHS_ANNOUNCED,
    ]


def test_day_and_night_are_numbered_alike():
    state = new_game(replace(TINY, round_limit=9), 0, TINY_DEAL)
    assert state.day == 1 and last(state, EventKind.NIGHT_FALLS).day == 1
    state = vote(talk(night(state, None)))
    assert state.day == 2 and last(state, EventKind.NIGHT_FALLS).day == 2
    assert last(state, EventKind.NOBODY_EXILED).day == 1
