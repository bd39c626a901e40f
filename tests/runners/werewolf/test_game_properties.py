"""Locks what must hold for every preset, deal and course of play."""

import random

import pytest
from game_playing import TEST_PRESETS, answer_all, play_random, random_action, steps
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from runners.werewolf.game import (
    Action,
    Decision,
    EventKind,
    IllegalAction,
    Observation,
    Phase,
    Preset,
    Role,
    Side,
    apply,
    choices,
    deal,
    legal,
    new_game,
    observe,
    pending,
    winner,
)

presets = st.sampled_from(TEST_PRESETS)
seeds = st.integers(0, 2**32)

AUDIENCES = {
    EventKind.WOLF_TEAM: {Role.WOLF},
    EventKind.WOLF_SAYS: {Role.WOLF},
    EventKind.WOLF_VOTE: {Role.WOLF},
    EventKind.WOLF_TARGET: {Role.WOLF},
    EventKind.SEER_RESULT: {Role.SEER},
}


@given(presets, seeds, seeds)
@settings(max_examples=80, deadline=None)
def test_invariants_hold_after_every_step(preset, seed, play_seed):
    rng = random.Random(play_seed)
    state = new_game(preset, seed)
    heard = {seat: [] for seat in preset.seats}
    last_words = []
    for before, actions, after in steps(state, lambda request: random_action(request, rng)):
        requests = pending(before)
        assert requests and len({request.seat for request in requests}) == len(requests)
        for request in requests:
            if request.decision is Decision.LAST_WORDS:
                last_words.append(request.seat)
                assert request.seat not in before.living
            else:
                assert request.seat in before.living
            assert set(request.targets) <= before.living and list(request.targets) == sorted(set(request.targets))
            assert legal(request, request.default)
            assert request.speaks == (not request.targets)
            for target in (*preset.seats, 0, len(preset.seats) + 1, None):
                assert legal(request, Action(target)) == (target in choices(request))
            seen = observe(before, request.seat)
            assert seen.request == request and all(event.visible_to(request.seat) for event in seen.events)
            heard[request.seat].extend(seen.events)
        assert all(observe(before, seat).request is None for seat in preset.seats if seat not in actions)
        assert after.living <= before.living
        assert after.events[: len(before.events)] == before.events and len(after.events) > len(before.events)
        assert before.day <= after.day <= min(before.day + 1, preset.round_limit)
        state = after
    assert len(set(last_words)) == len(last_words)
    assert pending(state) == () and state.phase is Phase.GAME_OVER
    ends = [event for event in state.events if event.kind is EventKind.GAME_OVER]
    assert ends == [state.events[-1]] and ends[0].data == {"result": winner(state).value}
    for seat in preset.seats:
        # Nothing was missed and nothing told twice.
        known = [event for event in state.events if event.visible_to(seat)]
        assert [*heard[seat], *observe(state, seat).events] == known
    for event in state.events:
        if event.kind is EventKind.ROLE_DEALT:
            assert event.audience == {event.seat}
        elif event.kind in AUDIENCES:
            assert event.audience and {state.role_of(seat) for seat in event.audience} == AUDIENCES[event.kind]
        else:
            assert event.audience is None


@given(presets, seeds, seeds)
@settings(max_examples=25, deadline=None)
def test_the_same_seed_and_actions_give_the_same_game(preset, seed, play_seed):
    random.seed(play_seed)  # The engine must not use the global generator.
    first = play_random(preset, seed, play_seed)
    random.seed(0)
    assert play_random(preset, seed, play_seed) == first


@given(presets, seeds)
@settings(max_examples=25, deadline=None)
def test_defaults_alone_end_every_game(preset, seed):
    state = new_game(preset, seed)
    for _, _, following in steps(state, lambda request: request.default):
        state = following
    assert winner(state) is not None


@given(presets, seeds, seeds, st.data())
@settings(max_examples=40, deadline=None)
def test_wrong_missing_and_illegal_actions_are_refused(preset, seed, play_seed, data):
    rng = random.Random(play_seed)
    history = [before for before, _, _ in steps(new_game(preset, seed), lambda request: random_action(request, rng))]
    state = data.draw(st.sampled_from(history))
    good = answer_all(state, lambda request: request.default)
    request = data.draw(st.sampled_from(pending(state)))
    stray = data.draw(st.sampled_from([seat for seat in (*preset.seats, 99) if seat not in good]))
    wrong_target = data.draw(st.integers(-3, 20).filter(lambda target: target not in request.targets))
    wrong = [
        {seat: action for seat, action in good.items() if seat != request.seat},
        {**good, stray: Action()},
        {**good, request.seat: Action(target=wrong_target)},
    ]
    if not request.speaks:
        wrong.append({**good, request.seat: Action(request.default.target, "多嘴")})
    for actions in wrong:
        with pytest.raises(IllegalAction):
            apply(state, actions)
    apply(state, good)


def _seen_by(
    preset: Preset, seed: int, roles, prey: frozenset[int], unchecked: frozenset[int], observer: int, play: int
):
    """The observer's observations at each of its turns and its known events, under choices that know no roles.

    prey: seats the wolves choose from, good in both deals. unchecked: seats the seer leaves alone.
    """

    def choose(request):
        rng = random.Random(f"{play}/{request.day}/{request.decision}")
        match request.decision:
            case Decision.WOLF_KILL:
                return Action(rng.choice([target for target in request.targets if target in prey]))
            case Decision.SEER_CHECK:
                targets = [target for target in request.targets if target not in unchecked]
                return Action(rng.choice(targets) if targets else None)
            case Decision.WOLF_TALK:
                return Action(text="老办法")
            case _:
                return random_action(request, random.Random(f"{play}/{request.day}/{request.decision}/{request.seat}"))

    seen: list[Observation] = []
    state = new_game(preset, seed, roles)
    for before, actions, after in steps(state, choose):
        if observer in actions:
            seen.append(observe(before, observer))
        state = after
    known = [e for e in state.events if e.visible_to(observer) and e.kind is not EventKind.GAME_OVER]
    return seen, known


@given(presets, seeds, seeds, st.data())
@settings(max_examples=100, deadline=None)
def test_swapping_roles_a_seat_does_not_know_changes_nothing_it_sees(preset, seed, play, data):
    roles = deal(preset, seed)
    observer, one, other = data.draw(st.permutations(preset.seats))[:3]
    assume(roles[one - 1] is not roles[other - 1])
    # A wolf knows the wolves, so only good seats can be swapped without its knowing.
    assume(roles[observer - 1].side is Side.GOOD or roles[one - 1].side is roles[other - 1].side is Side.GOOD)
    swapped = list(roles)
    swapped[one - 1], swapped[other - 1] = roles[other - 1], roles[one - 1]
    wolves = {seat for seat in preset.seats if Side.WOLF in (roles[seat - 1].side, swapped[seat - 1].side)}
    prey = frozenset(preset.seats) - wolves
    assume(len(prey) >= preset.round_limit)
    unchecked = frozenset((one, other))
    seen, known = _seen_by(preset, seed, roles, prey, unchecked, observer, play)
    seen_swapped, known_swapped = _seen_by(preset, seed, tuple(swapped), prey, unchecked, observer, play)
    # Who has won depends on the roles, so one game may end sooner; up to there nothing differs.
    assert all(a == b for a, b in zip(seen, seen_swapped, strict=False))
    assert all(a == b for a, b in zip(known, known_swapped, strict=False))
