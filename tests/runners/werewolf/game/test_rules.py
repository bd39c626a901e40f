"""The referee itself: deals, presets, what is refused and in which words, and that states never change.

The rules, one file for each part of a round: test_night, test_election, test_explosion,
test_aftermath, test_day.
"""

import copy
from collections import Counter
from dataclasses import replace

import pytest

from runners.werewolf.game import (
    OPTIONS,
    PRESETS,
    Action,
    IllegalAction,
    Option,
    Phase,
    Preset,
    Role,
    WinRule,
    apply,
    check,
    choices,
    deal,
    get_preset,
    new_game,
    observe,
    pending,
)
from tests.support.game.game_playing import NINE, STRICT, TINY, TWELVE, answer_all, deck
from tests.support.game.game_scripts import play, question, step, twelve, until

TINY_DEAL = deck(wolf=1, seer=1, villager=3)


# --- deals and presets ------------------------------------------------------------------------------------------------


def test_the_shipped_presets_deal_what_the_rules_say():
    decks = {name: {role.value: count for role, count in Counter(p.deck).items()} for name, p in PRESETS.items()}
    assert decks == {
        "12p_sheriff": dict(villager=4, seer=1, witch=1, hunter=1, guard=1, wolf=3, wolf_king=1),
        "9p": dict(villager=3, seer=1, witch=1, hunter=1, wolf=3),
        "7p": dict(villager=3, seer=1, witch=1, wolf=2),
        "5p_tiny": dict(villager=3, seer=1, wolf=1),
    }
    assert {name for name, preset in PRESETS.items() if preset.sheriff} == {"12p_sheriff"}
    assert {name for name, preset in PRESETS.items() if preset.wolves_may_explode} == {"12p_sheriff"}
    assert {name for name, preset in PRESETS.items() if preset.witch_self_save} == {"7p"}
    assert {name for name, preset in PRESETS.items() if preset.win_rule is WinRule.PARITY} == {"5p_tiny"}
    assert not any(preset.wolf_king_may_explode for preset in PRESETS.values())


def test_the_deal_is_the_decks_and_depends_on_the_seed():
    deals = [deal(TWELVE, seed) for seed in range(50)]
    assert all(Counter(roles) == Counter(TWELVE.deck) for roles in deals)
    assert len(set(deals)) == 50 and deals[7] == deal(TWELVE, 7)
    assert new_game(TWELVE, 7).roles == deal(TWELVE, 7)


def test_a_given_deal_must_be_the_decks():
    with pytest.raises(ValueError, match="do not deal the deck of preset '5p_tiny'"):
        new_game(TINY, 0, roles=deck(wolf=2, seer=1, villager=2))
    assert new_game(TINY, 0, roles=TINY_DEAL).roles == TINY_DEAL


def test_unknown_presets_and_options_name_the_valid_ones():
    with pytest.raises(ValueError, match=r"unknown preset '9p_typo'; valid presets: 12p_sheriff, 9p, 7p, 5p_tiny"):
        get_preset("9p_typo")
    with pytest.raises(
        ValueError, match=r"unknown rule options \['sherif'\] for preset '9p'; valid options: win_rule,"
    ):
        get_preset("9p", {"sherif": True})


def test_options_replace_a_presets_own_values():
    changed = get_preset("7p", {"win_rule": "parity", "witch_self_save": False})
    assert (changed.win_rule, changed.witch_self_save) == (WinRule.PARITY, False)
    assert replace(changed, win_rule=WinRule.WIPE_A_KIND, witch_self_save=True) == PRESETS["7p"]
    assert get_preset("7p") is not changed and get_preset("7p").win_rule is WinRule.WIPE_A_KIND
    assert set(OPTIONS).isdisjoint({"name", "deck"})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sheriff": "yes"}, "rule option sheriff must be bool, got 'yes'"),
        ({"round_limit": "3"}, "rule option round_limit must be int, got '3'"),
        ({"round_limit": True}, "rule option round_limit must be int, got True"),
        ({"win_rule": "majority"}, "rule option win_rule must be one of wipe_a_kind, parity, got 'majority'"),
        ({"round_limit": 0}, "preset '9p': round_limit must be at least 1"),
        ({"speech_chars": 0}, "speech_chars must be at least 1"),
        ({"wolf_talk_rounds": -1}, "wolf_talk_rounds must not be negative"),
    ],
)
def test_values_that_make_no_rule_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        get_preset("9p", options)


@pytest.mark.parametrize(
    ("roles", "message"),
    [
        (deck(wolf=2), "preset 'odd': the deck needs wolves and others"),
        (deck(villager=2), "the deck needs wolves and others"),
        ((), "the deck needs wolves and others"),
        (deck(wolf=1, seer=2, witch=2, villager=1), "at most one of each: seer, witch"),
    ],
)
def test_decks_that_make_no_game_are_refused(roles, message):
    with pytest.raises(ValueError, match=message):
        Preset(name="odd", deck=roles)


@pytest.mark.parametrize("king", [False, True])
def test_which_roles_may_explode(king):
    preset = replace(TWELVE, wolf_king_may_explode=king)
    assert {role for role in Role if preset.may_explode(role)} == {Role.WOLF} | ({Role.WOLF_KING} if king else set())
    assert not any(replace(preset, wolves_may_explode=False).may_explode(role) for role in Role)


# --- what is asked and what is refused --------------------------------------------------------------------------------


def test_choices_are_the_targets_the_options_and_nobody_where_that_is_legal():
    state = play(new_game(NINE, 0, deck(seer=1, witch=1, hunter=1, villager=3, wolf=3)), "night_actions: 7,8,9=4")
    request = question(state, 2)
    assert choices(request) == (1, 3, 4, 5, 6, 7, 8, 9, Option.SAVE, None)
    strict = question(new_game(STRICT, 0, deck(wolf=2, seer=1, villager=3)), 1)
    assert choices(strict) == (3, 4, 5, 6)


def test_the_default_is_nobody_or_else_a_drawn_choice():
    drawn = set()
    for seed in range(60):
        state = new_game(STRICT, seed, deck(wolf=2, seer=1, villager=3))
        assert question(state, 3).default == Action() and pending(state) == pending(state)
        drawn.add((question(state, 1).default.choice, question(state, 2).default.choice))
    # Each seat on its own; the lowest seat no more often than another.
    assert drawn == {(one, other) for one in (3, 4, 5, 6) for other in (3, 4, 5, 6)}
    wolf_may_explode = twelve("sign_up: 1,5=run\nwithdrawal:", may_abstain=False)
    assert question(wolf_may_explode, 9).default.choice in (1, 5)
    state = until(state, Phase.EXILE_VOTE)
    assert question(state, 1).default.choice in {2, 3, 4, 5, 6} & state.living
    with pytest.raises(IllegalAction, match=r"seat 1 may not answer exile_vote with Action\(choice=None"):
        apply(state, {**answer_all(state, lambda request: request.default), 1: Action()})


@pytest.mark.parametrize("choice", ["explode", "9", True, 9.0])
def test_what_merely_equals_a_choice_is_none(choice):
    state = until(twelve(""), Phase.EXILE_VOTE)
    assert {1, 9, Option.EXPLODE} <= {*choices(question(state, 10))}
    with pytest.raises(IllegalAction, match="seat 10 may not answer exile_vote"):
        apply(state, {**answer_all(state, lambda request: request.default), 10: Action(choice)})


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        ({1: Action(3)}, r"exactly the asked seats \[1, 2\] \(night_actions, day 1\); missing: \[2\], not asked: \[\]"),
        ({1: Action(3), 2: Action(), 4: Action()}, r"missing: \[\], not asked: \[4\]"),
        ({}, r"missing: \[1, 2\]"),
        ({1: Action(1), 2: Action()}, r"seat 1 may not answer wolf_kill with Action\(choice=1.*\[2, 3, 4, 5, None\]"),
        ({1: Action(9), 2: Action()}, "seat 1 may not"),
        ({1: Action(0), 2: Action()}, "seat 1 may not"),
        ({1: Action(3, "杀"), 2: Action()}, "seat 1 may not.*no speech"),
        ({1: Action(Option.EXPLODE), 2: Action()}, "seat 1 may not"),
        ({1: Action(3), 2: Action(2)}, "seat 2 may not answer seer_check"),
    ],
)
def test_wrong_actions_name_the_seat_and_what_is_legal(actions, message):
    with pytest.raises(IllegalAction, match=message):
        apply(new_game(TINY, 0, TINY_DEAL), actions)


def test_options_are_named_by_their_values():
    state = play(new_game(NINE, 0, deck(seer=1, witch=1, hunter=1, villager=3, wolf=3)), "night_actions: 7,8,9=4")
    with pytest.raises(IllegalAction, match=r"seat 2 may not answer witch .*legal: \[1, 3, .*9, 'save', None\]"):
        check(question(state, 2), Action(2))


def test_after_the_end_nobody_may_act():
    state = play(new_game(TINY, 0, TINY_DEAL), "exile_vote: 2,3=1")
    with pytest.raises(IllegalAction, match=r"the game is over \(good\); no seat may act, got actions of \[2\]"):
        apply(state, {2: Action()})
    with pytest.raises(IllegalAction, match="the game is over"):
        apply(state, {})


@pytest.mark.parametrize("seat", [0, 6, -1])
def test_there_is_no_view_of_a_seat_that_does_not_exist(seat):
    with pytest.raises(ValueError, match=r"no seat .* in preset '5p_tiny', which has seats \[1, 2, 3, 4, 5\]"):
        observe(new_game(TINY, 0), seat)


def test_apply_leaves_the_given_state_as_it_was():
    state = new_game(TWELVE, 5)
    for _ in range(60):
        before = copy.deepcopy(state)
        following = step(state)
        assert state == before and following != state
        state = following


def test_a_refused_action_leaves_the_given_state_as_it_was():
    state = new_game(TINY, 0, TINY_DEAL)
    before = copy.deepcopy(state)
    with pytest.raises(IllegalAction):
        apply(state, {1: Action(3), 2: Action(2)})
    assert state == before


# --- the scripts that these tests are told in -------------------------------------------------------------------------


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
