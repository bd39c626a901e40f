"""The referee itself: deals, presets, chance, what is refused and in which words.

Who is asked what is held to the rules at every step of random games (``game_invariants``), and their records as a whole
(``game_record``); what becomes of each answer, and the rules of a round, are told by the golden games ``rule_*.txt``.
"""

from collections import Counter

import pytest

from runners.werewolf.game import (
    Action,
    EventKind,
    IllegalAction,
    Option,
    Phase,
    Preset,
    Result,
    WinRule,
    apply,
    choices,
    get_preset,
    new_game,
    observe,
    pending,
)
from runners.werewolf.game.aftermath import outcome
from tests.support.game.game_playing import SEVEN, TINY, TWELVE, answer_all, deck
from tests.support.game.game_scripts import all_of, last, play, question, twelve, until

TINY_DEAL = deck(wolf=1, seer=1, villager=3)


def test_the_deal_is_the_decks_and_depends_on_the_seed():
    deals = [new_game(TWELVE, seed).roles for seed in range(50)]
    assert all(Counter(roles) == Counter(TWELVE.deck) for roles in deals)
    assert len(set(deals)) == 50 and deals[7] == new_game(TWELVE, 7).roles
    with pytest.raises(ValueError, match="do not deal the deck of preset '5p_tiny'"):
        new_game(TINY, 0, roles=deck(wolf=2, seer=1, villager=2))


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("9p_typo", {}, "unknown preset '9p_typo'"),
        ("9p", {"sherif": True}, "unknown rule options"),
        ("9p", {"round_limit": True}, "rule option round_limit must be int, got True"),
        ("9p", {"win_rule": "majority"}, "rule option win_rule must be one of wipe_a_kind, parity, got 'majority'"),
        ("9p", {"round_limit": 0}, "preset '9p': round_limit must be at least 1"),
        ("9p", {"speech_chars": 0}, "speech_chars must be at least 1"),
        ("9p", {"wolf_talk_rounds": -1}, "wolf_talk_rounds must not be negative"),
    ],
)
def test_what_makes_no_rules_is_refused(name, options, message):
    with pytest.raises(ValueError, match=message):
        get_preset(name, options)


@pytest.mark.parametrize(
    ("roles", "message"),
    [
        (deck(wolf=2), "preset 'odd': the deck needs wolves and others"),
        ((), "the deck needs wolves and others"),
        (deck(wolf=1, seer=2, witch=2, villager=1), "at most one of each: seer, witch"),
    ],
)
def test_decks_that_make_no_game_are_refused(roles, message):
    with pytest.raises(ValueError, match=message):
        Preset(name="odd", deck=roles)


@pytest.mark.parametrize(("option", "decision"), [("may_abstain", "exile_vote"), ("wolves_may_pass", "wolf_kill")])
def test_where_somebody_must_be_chosen_the_default_is_drawn(option, decision):
    """A fixed default, such as the lowest seat, would fall on the same seats in every game."""
    drawn = set()
    for seed in range(40):
        state = new_game(get_preset("9p", {option: False}), seed)
        while not any(request.decision == decision for request in pending(state)):
            state = apply(state, {request.seat: request.default for request in pending(state)})
        for request in pending(state):
            if request.decision == decision:
                assert request.default.choice in request.targets
                assert request.default == observe(state, request.seat).request.default
                drawn.add(request.default.choice)
    assert drawn == set(range(1, 10))


@pytest.mark.parametrize("choice", ["explode", "9", True, 9.0])
def test_what_merely_equals_a_choice_is_none(choice):
    state = until(twelve(""), Phase.EXILE_VOTE)
    assert {1, 9, Option.EXPLODE} <= {*choices(question(state, 10))}
    with pytest.raises(IllegalAction, match="seat 10 may not answer exile_vote"):
        apply(state, {**answer_all(state, lambda request: request.default), 10: Action(choice)})


def test_a_speech_longer_than_is_heard_is_refused():
    state = until(new_game(TINY, 0), Phase.DISCUSSION)
    (request,) = pending(state)
    apply(state, {request.seat: Action(text="好" * 120)})
    with pytest.raises(IllegalAction, match="speech of at most 120 characters"):
        apply(state, {request.seat: Action(text="好" * 121)})


def test_there_is_no_view_of_a_seat_that_does_not_exist():
    for seat in (0, 6, -1):
        with pytest.raises(ValueError, match="no seat"):
            observe(new_game(TINY, 0), seat)


def test_a_wolf_sees_proposals_of_its_mates_and_the_remaining_rounds():
    state, speakers, told = until(twelve(""), Phase.WOLF_TALK), [], []
    for victim in (5, 6, None, 5, 6):
        (request,) = pending(state)
        speakers.append(request.seat)
        told.append((request.rounds_left, request.proposed))
        state = apply(state, {request.seat: Action(victim)})
    one, two, _, four, again = speakers
    assert again == one and told[:3] == [(1, ()), (1, ((one, 5),)), (1, ((one, 5), (two, 6)))]
    assert told[4] == (0, ((two, 6), (four, 5)))


def test_before_a_lone_candidate_is_elected_the_wolves_are_told_who_it_is():
    requests = pending(until(twelve("sign_up: 1=run"), Phase.UNOPPOSED))
    assert [(request.seat, request.subject) for request in requests] == [(9, 1), (10, 1), (11, 1)]


def test_a_challenged_wolf_king_is_not_asked_to_shoot():
    """A shot that is not taken leaves no record, so no golden game shows this."""
    dealt = deck(knight=1, villager=4, wolf=1, wolf_king=1)
    state = play(new_game(Preset(name="7p_duel", deck=dealt, wolf_talk_rounds=0), 0, dealt), "duel: 1=7")
    assert 7 not in state.living and (state.day, state.phase) == (2, Phase.NIGHT_ACTIONS)


def test_an_idiot_that_showed_its_card_is_not_asked_in_a_pk():
    """Not even whether it explodes, which would leave no record, either."""
    dealt = deck(idiot=1, seer=1, villager=3, wolf=2)
    state = new_game(Preset(name="7p_idiot", deck=dealt, wolf_talk_rounds=0), 0, dealt)
    state = until(play(state, "exile_vote: 2,3=1; exile_vote: 2=3 3=2"), Phase.PK_VOTE)
    assert [request.seat for request in pending(state)] == [4, 5, 6, 7]


def test_a_sheriff_elected_before_a_shot_is_not_shown_until_the_shot_is_settled():
    """It would tell the table that somebody is asked in secret."""
    state = twelve("""
        sign_up:       1,2,9=run
        campaign:      9=explode
        night_actions: 10,11,12=3
        witch_action:  2=pass
        sheriff_vote:  5=1
    """)
    assert [request.decision for request in pending(state)] == ["shot"]
    assert (observe(state, 3).sheriff, observe(state, 5).sheriff) == (1, None)
    assert observe(play(state, "shot: 3=pass"), 5).sheriff == 1


def test_where_nobody_lives_the_wolves_have_no_parity():
    assert outcome(WinRule.PARITY, deck(wolf=1, villager=1), frozenset()) is Result.GOOD


# --- chance -----------------------------------------------------------------------------------------------------------


def round_the_table(seats: tuple[int, ...]) -> set[tuple[int, ...]]:
    """From every seat, both ways."""
    turned = [seats[start:] + seats[:start] for start in range(len(seats))]
    return {*turned, *(order[::-1] for order in turned)}


def test_orders_are_drawn_round_the_table_both_ways_and_from_every_seat():
    tiny = [play(new_game(TINY, seed, TINY_DEAL), "night_actions: 1=pass") for seed in range(200)]
    assert {last(state, EventKind.SPEAKING_ORDER).seats for state in tiny} == round_the_table((1, 2, 3, 4, 5))
    running = [twelve("sign_up: 1,5,9,12=run; campaign:", seed) for seed in range(60)]
    spoke = {tuple(event.seat for event in all_of(state, EventKind.CAMPAIGN_SPEECH)) for state in running}
    assert spoke == round_the_table((1, 5, 9, 12))


def test_ties_of_wolves_and_explosions_at_once_are_drawn():
    victims = []
    for seed in range(40):
        state = play(new_game(SEVEN, seed, deck(wolf=2, seer=1, villager=4)), "wolf_talk:")
        actions = {1: Action(4), 2: Action(None), 3: Action(5)}
        assert apply(state, actions).events == apply(state, actions).events
        victims.append(last(apply(state, actions), EventKind.WOLF_TARGET).target)
    assert set(victims) == {4, None} and 5 < victims.count(4) < 35
    exploded = [last(twelve("exile_vote: 9,10,11=explode", seed), EventKind.EXPLODED).seat for seed in range(60)]
    assert all(exploded.count(seat) > 8 for seat in (9, 10, 11))
