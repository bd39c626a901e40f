"""What must hold for every preset, seed and choice: every step is in order, states are values, nothing hidden shows.

The invariants themselves are in ``game_invariants`` and ``game_record``; test_endurance checks them in many
more games.
"""

import copy
import random
from collections.abc import Iterable
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from runners.werewolf.game import (
    Action,
    EventKind,
    GameState,
    IllegalAction,
    Observation,
    Option,
    Phase,
    Preset,
    Role,
    apply,
    choices,
    legal,
    new_game,
    observe,
    pending,
)
from tests.support.game.game_invariants import check_finished, check_invariants, check_start
from tests.support.game.game_playing import (
    TEST_PRESETS,
    Step,
    answer_all,
    herd_steps,
    random_action,
    random_steps,
    steps,
)
from tests.support.game.two_worlds import draw_worlds

presets = st.sampled_from(TEST_PRESETS)
seeds = st.integers(0, 10**6)
players = st.sampled_from((random_steps, herd_steps))


def some_state(preset: Preset, seed: int, play_seed: int, data: st.DataObject) -> GameState:
    """A state that random players reach, and that asks somebody."""
    history = [before for before, _, _ in data.draw(players)(preset, seed, play_seed)]
    return data.draw(st.sampled_from(history))


# --- every step -------------------------------------------------------------------------------------------------------


def check_game(preset: Preset, seed: int, played: Iterable[Step]) -> None:
    """Every invariant at every step, and that every seat hears everything it may know exactly once."""
    state = new_game(preset, seed)
    check_start(state)
    heard = {seat: [] for seat in preset.seats}
    for before, actions, after in played:
        assert before == state
        check_invariants(before, actions, after)
        questions = {request.seat: request for request in pending(before)}
        for seat in preset.seats:
            view = observe(before, seat)
            assert view.request == questions.get(seat)
            if seat in actions:
                heard[seat].extend(view.events)
        state = after
    check_finished(state)
    for seat in preset.seats:
        known = [event for event in state.events if event.visible_to(seat)]
        assert [*heard[seat], *observe(state, seat).events] == known


@given(presets, seeds, seeds, players)
@settings(max_examples=150, deadline=None)
def test_every_step_of_every_game_is_in_order(preset, seed, play_seed, play):
    check_game(preset, seed, play(preset, seed, play_seed))


@given(presets, seeds)
@settings(max_examples=30, deadline=None)
def test_defaults_alone_end_every_game(preset, seed):
    check_game(preset, seed, steps(new_game(preset, seed), lambda request: request.default))


# --- states are values ------------------------------------------------------------------------------------------------


@given(presets, seeds, seeds, players)
@settings(max_examples=60, deadline=None)
def test_the_order_of_the_actions_does_not_matter(preset, seed, play_seed, play):
    for before, actions, after in play(preset, seed, play_seed):
        assert apply(before, dict(reversed(actions.items()))) == after


@given(presets, seeds, seeds, st.data())
@settings(max_examples=80, deadline=None)
def test_apply_refuses_wrong_missing_and_illegal_actions_and_never_changes_its_state(preset, seed, play_seed, data):
    state = some_state(preset, seed, play_seed, data)
    untouched = copy.deepcopy(state)
    good = answer_all(state, lambda request: request.default)
    request = data.draw(st.sampled_from(pending(state)))
    stray = data.draw(st.sampled_from([seat for seat in (*preset.seats, 99) if seat not in good] or [99]))
    everything = (*range(-1, len(preset.seats) + 2), *Option, None)
    for choice in everything:
        assert legal(request, Action(choice)) is (choice in choices(request))
    wrong = data.draw(st.sampled_from([choice for choice in everything if choice not in choices(request)]))
    with pytest.raises(IllegalAction, match=rf"missing: \[{request.seat}\]"):
        apply(state, {seat: action for seat, action in good.items() if seat != request.seat})
    with pytest.raises(IllegalAction, match=rf"additional: \[{stray}\]"):
        apply(state, {**good, stray: Action()})
    with pytest.raises(IllegalAction, match=rf"seat {request.seat} may not answer .* legal: "):
        apply(state, {**good, request.seat: Action(wrong)})
    if not request.speaks:
        with pytest.raises(IllegalAction, match="no speech"):
            apply(state, {**good, request.seat: Action(request.default.choice, "多嘴")})
    assert apply(state, answer_all(state, partial(random_action, rng=random.Random(play_seed)))) != state == untouched


# --- what is hidden does not show -------------------------------------------------------------------------------------


def seen_by(observer: int, played: list[Step]) -> tuple[list[Observation], list, list]:
    """The observer's view at each of its turns; all that it learned; what it saw that looked at every step.

    But for the game's end, and nothing twice on end.
    """
    views, watched = [], []
    for before, actions, _ in played:
        public = before.public
        told = [event for event in before.events[: public.events] if event.audience is None]
        seen = (public.day, public.phase, public.living, public.sheriff, told)
        if seen not in watched[-1:]:
            watched.append(seen)
        if observer in actions:
            views.append(observe(before, observer))
    events = played[-1][2].events
    return views, [e for e in events if e.visible_to(observer) and e.kind is not EventKind.GAME_OVER], watched


@given(presets, seeds, seeds, st.data())
@settings(max_examples=120, deadline=None)
def test_whole_games_in_which_two_unknown_roles_are_swapped_look_the_same(preset, seed, play, data):
    observer, worlds = draw_worlds(preset, seed, play, data)
    assume(all(worlds))
    # Who has won depends on the roles, so one game may end sooner; up to there nothing differs. Nor does it to whoever
    # looks all the time while somebody is asked in secret.
    for one, other in zip(*(seen_by(observer, world) for world in worlds), strict=True):
        assert all(a == b for a, b in zip(one, other, strict=False))


BY_ROLE = (Phase.WOLF_TALK, Phase.NIGHT_ACTIONS, Phase.WITCH_ACTION)
ELECTION = (
    *(Phase.SIGN_UP, Phase.CAMPAIGN, Phase.WITHDRAWAL, Phase.UNOPPOSED),
    *(Phase.SHERIFF_VOTE, Phase.SHERIFF_PK_SPEECH, Phase.SHERIFF_PK_VOTE),
)
ELECTED = st.sampled_from([preset for preset in TEST_PRESETS if preset.sheriff])


def nights_before_an_election(preset: Preset, seed: int, play_seed: int) -> list[GameState]:
    """The states at the start of night 1 and, where an explosion put the election off, of night 2."""
    states = [before for before, _, _ in herd_steps(preset, seed, play_seed) if before.election is not None]
    nights = {state.day: state for state in reversed(states) if state.phase not in ELECTION}
    return [*nights.values()]


def another_night(state: GameState, night: int) -> GameState:
    """``state`` after this night, played by ``night``."""
    rng = random.Random(night)
    while state.phase in BY_ROLE:
        state = apply(state, answer_all(state, lambda request: random_action(request, rng)))
    return state


def without_news(state: GameState) -> list[Observation]:
    """What every seat sees, but for events: of these, those of the night rightly differ for a wolf or a witch."""
    return [replace(observe(state, seat), events=()) for seat in state.preset.seats]


def knows_nothing_of_the_night(state: GameState, seat: int) -> bool:
    return state.role_of(seat) is Role.VILLAGER or (state.role_of(seat) is Role.HUNTER and seat != state.night.poisoned)


@given(ELECTED, seeds, seeds, seeds, seeds, st.data())
@settings(max_examples=80, deadline=None)
def test_a_nights_deaths_change_nothing_that_is_seen_before_they_are_announced(
    preset, seed, play_seed, night, other_night, data
):
    start = data.draw(st.sampled_from(nights_before_an_election(preset, seed, play_seed)))
    one, other = another_night(start, night), another_night(start, other_night)
    announced = [EventKind.DEATHS_ANNOUNCED in [e.kind for e in s.events[len(start.events) :]] for s in (one, other)]
    assert announced[0] is announced[1]
    rng = random.Random(play_seed)
    while one.phase in ELECTION and one.day == start.day:
        assert without_news(one) == without_news(other)
        for seat in preset.seats:
            if knows_nothing_of_the_night(one, seat) and knows_nothing_of_the_night(other, seat):
                assert observe(one, seat) == observe(other, seat)
        actions = answer_all(one, partial(random_action, rng=rng))
        one, other = apply(one, actions), apply(other, actions)
    public = [
        [event for event in state.events[len(start.events) :] if event.audience is None] for state in (one, other)
    ]
    before_it = [events[: [event.kind for event in events].index(EventKind.DEATHS_ANNOUNCED)] for events in public]
    assert before_it[0] == before_it[1]
