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

from runners.werewolf.brains import RandomBrain, ScriptedBrain
from runners.werewolf.game import (
    PRESETS,
    Action,
    Decision,
    EventKind,
    GameState,
    IllegalAction,
    Observation,
    Option,
    Phase,
    Preset,
    Request,
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
from tests.support.game.game_invariants import check_finished, check_invariants, check_start
from tests.support.game.game_playing import (
    TEST_PRESETS,
    answer_all,
    brain_steps,
    herd_steps,
    play_random,
    random_action,
    random_steps,
    steps,
)

presets = st.sampled_from(TEST_PRESETS)
seeds = st.integers(0, 10**6)
players = st.sampled_from((random_steps, herd_steps))


def some_state(preset: Preset, seed: int, play_seed: int, data: st.DataObject) -> GameState:
    """A state that random players reach, and that asks somebody."""
    history = [before for before, _, _ in data.draw(players)(preset, seed, play_seed)]
    return data.draw(st.sampled_from(history))


# --- every step -------------------------------------------------------------------------------------------------------


def check_game(preset: Preset, seed: int, played: Iterable) -> None:
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
@settings(max_examples=300, deadline=None)
def test_every_step_of_every_game_is_in_order(preset, seed, play_seed, play):
    check_game(preset, seed, play(preset, seed, play_seed))


@pytest.mark.parametrize("brain", [RandomBrain, ScriptedBrain])
@pytest.mark.parametrize("preset", PRESETS.values(), ids=PRESETS.keys())
def test_every_step_of_a_game_of_brains_is_in_order(preset, brain):
    for seed in range(3):
        check_game(preset, seed, brain_steps(preset, seed, brain))


@given(presets, seeds)
@settings(max_examples=30, deadline=None)
def test_defaults_alone_end_every_game(preset, seed):
    check_game(preset, seed, steps(new_game(preset, seed), lambda request: request.default))


# --- states are values ------------------------------------------------------------------------------------------------


@given(presets, seeds, seeds)
@settings(max_examples=30, deadline=None)
def test_the_same_seed_and_actions_give_the_same_game(preset, seed, play_seed):
    random.seed(play_seed)  # The engine must not use the global generator.
    first = play_random(preset, seed, play_seed)
    random.seed(0)
    assert play_random(preset, seed, play_seed) == first


@given(presets, seeds, seeds, players)
@settings(max_examples=60, deadline=None)
def test_the_order_of_the_actions_does_not_matter(preset, seed, play_seed, play):
    for before, actions, after in play(preset, seed, play_seed):
        assert apply(before, dict(reversed(actions.items()))) == after


@given(presets, seeds, seeds, st.data())
@settings(max_examples=60, deadline=None)
def test_apply_never_changes_the_state_it_is_given(preset, seed, play_seed, data):
    state = some_state(preset, seed, play_seed, data)
    before = copy.deepcopy(state)
    rng = random.Random(play_seed)
    after = apply(state, answer_all(state, lambda request: random_action(request, rng)))
    assert state == before and after != before


@given(presets, seeds, seeds, st.data())
@settings(max_examples=80, deadline=None)
def test_wrong_missing_and_illegal_actions_are_refused(preset, seed, play_seed, data):
    state = some_state(preset, seed, play_seed, data)
    good = answer_all(state, lambda request: request.default)
    request = data.draw(st.sampled_from(pending(state)))
    stray = data.draw(st.sampled_from([seat for seat in (*preset.seats, 99) if seat not in good] or [99]))
    everything = (*range(-1, len(preset.seats) + 2), *Option, None)
    for choice in everything:
        assert legal(request, Action(choice)) is (choice in choices(request))
    wrong = data.draw(st.sampled_from([choice for choice in everything if choice not in choices(request)]))
    with pytest.raises(IllegalAction, match=rf"missing: \[{request.seat}\]"):
        apply(state, {seat: action for seat, action in good.items() if seat != request.seat})
    with pytest.raises(IllegalAction, match=rf"not asked: \[{stray}\]"):
        apply(state, {**good, stray: Action()})
    with pytest.raises(IllegalAction, match=rf"seat {request.seat} may not answer .* legal: "):
        apply(state, {**good, request.seat: Action(wrong)})
    if not request.speaks:
        with pytest.raises(IllegalAction, match="no speech"):
            apply(state, {**good, request.seat: Action(request.default.choice, "多嘴")})
    apply(state, good)


# --- what is hidden does not show -------------------------------------------------------------------------------------

BY_ROLE = (Phase.WOLF_TALK, Phase.NIGHT_ACTIONS, Phase.WITCH_ACTION, Phase.SHOT)
"""Phases in which it depends on the roles who is asked."""

ALSO_WOLVES = (Phase.WITHDRAWAL, Phase.SHERIFF_VOTE, Phase.UNOPPOSED, Phase.SHERIFF_PK_VOTE, Phase.PK_VOTE)
"""Phases in which wolves are asked whether they explode besides those that are asked anyway."""


def without_a_question_else(state: GameState) -> Iterable[int]:
    """Seats that a phase of ALSO_WOLVES asks only whether they explode, if they may."""
    if state.phase in (Phase.SHERIFF_PK_VOTE, Phase.PK_VOTE):
        return state.tied
    if state.phase is Phase.WITHDRAWAL:
        return state.election.signed_up
    return state.living if state.election.put_off else state.living.difference(state.election.signed_up)


def with_roles_swapped(state: GameState, one: int, other: int) -> GameState:
    """``state`` as it would be if two seats had been dealt each other's role."""
    swap = {one: other, other: one}
    roles = tuple(state.role_of(swap.get(seat, seat)) for seat in state.preset.seats)
    waiting = state.waiting
    if state.phase in BY_ROLE:
        waiting = tuple(swap.get(seat, seat) for seat in state.waiting)
    elif state.phase in ALSO_WOLVES:
        asked_anyway = {r.seat for r in pending(state) if r.decision is not Decision.EXPLOSION}
        explosive = {seat for seat in without_a_question_else(state) if state.preset.may_explode(roles[seat - 1])}
        waiting = tuple(sorted(asked_anyway | (explosive & state.living)))
    return replace(state, roles=roles, waiting=waiting)


@given(presets, seeds, seeds, st.data())
@settings(max_examples=60, deadline=None)
def test_no_view_depends_on_roles_that_the_seat_does_not_know(preset, seed, play_seed, data):
    state = some_state(preset, seed, play_seed, data)
    for one in preset.seats:
        for other in preset.seats[one:]:
            mixed = state.role_of(one).side is not state.role_of(other).side
            swapped = with_roles_swapped(state, one, other)
            for seat in set(preset.seats) - {one, other}:
                # A wolf knows who the wolves are.
                if not (mixed and state.role_of(seat).side is Side.WOLF):
                    assert observe(swapped, seat) == observe(state, seat)


class _Undecidable(Exception):
    """A wolf must hit somebody, and everybody left is a wolf in one of the two deals."""


def blind_chooser(play: int, pair: frozenset[int], prey: frozenset[int], idle: frozenset[Decision]):
    """Choices that are the same in two games that differ only in the roles of ``pair``.

    prey: whom the wolves hit: seats that are good in both deals. idle: decisions in which nobody is chosen.
    """

    def pick(options: Iterable, *key: object):
        return random.Random("/".join(map(str, (play, *key)))).choice([*options])

    def choose(request: Request) -> Action:
        decision, day = request.decision, request.day
        if decision in idle or (decision is Decision.SHOT and request.seat in pair):
            return Action()
        match decision:
            case Decision.WOLF_TALK | Decision.WOLF_KILL:
                targets = [target for target in request.targets if target in prey]
                talks = decision is Decision.WOLF_TALK
                if not targets and not request.may_pass:
                    raise _Undecidable
                if not targets or (talks and pick((True, False), day, "silent")):
                    return Action()
                return Action(pick(targets, day, "prey"))
            case Decision.SEER_CHECK:
                return Action(pick([None, *(target for target in request.targets if target not in pair)], day, "check"))
            case Decision.GUARD | Decision.WITCH:
                return Action(pick(choices(request), day, decision))
        # Only wolves are offered to explode, so the two must not: whether they are offered differs.
        explodes = Option.EXPLODE in request.options and request.seat not in pair
        if explodes and pick(range(10), day, request.phase, request.seat, "explode") == 0:
            return Action(Option.EXPLODE)
        return Action(
            pick([option for option in choices(request) if option is not Option.EXPLODE], day, decision, request.seat),
            pick(("", "我是好人"), day, request.phase, request.seat, "speech") if request.speaks else "",
        )

    return choose


def what_is_public(state: GameState) -> tuple:
    """What any seat sees that looks at the table without being asked, whatever its role."""
    public = state.public
    told = tuple(event for event in state.events[: public.events] if event.audience is None)
    return (public.day, public.phase, public.living, public.sheriff, told)


def seen_by(observer: int, state: GameState, choose) -> tuple[list[Observation], list, list]:
    """The observer's view at each of its turns; all that it learned; what it saw that looked at every step.

    But for the game's end, and nothing twice on end.
    """
    views, watched = [], []
    try:
        for before, actions, after in steps(state, choose):
            if what_is_public(before) not in watched[-1:]:
                watched.append(what_is_public(before))
            if observer in actions:
                views.append(observe(before, observer))
            state = after
    except _Undecidable:
        pass
    return views, [e for e in state.events if e.visible_to(observer) and e.kind is not EventKind.GAME_OVER], watched


@given(presets, seeds, seeds, st.data())
@settings(max_examples=250, deadline=None)
def test_whole_games_in_which_two_unknown_roles_are_swapped_look_the_same(preset, seed, play, data):
    roles = deal(preset, seed)
    observer, one, other = data.draw(st.permutations(preset.seats))[:3]
    assume(roles[one - 1] is not roles[other - 1])
    swapped = list(roles)
    swapped[one - 1], swapped[other - 1] = roles[other - 1], roles[one - 1]
    # A wolf knows the wolves, so only good seats can be swapped without its knowing.
    assume(roles[observer - 1].side is Side.GOOD or roles[one - 1].side is roles[other - 1].side is Side.GOOD)
    prey = frozenset(s for s in preset.seats if roles[s - 1].side is swapped[s - 1].side is Side.GOOD)
    # What a guard or a witch does dies with it, and the two may die on different days.
    night_work = {Role.GUARD: Decision.GUARD, Role.WITCH: Decision.WITCH}
    idle = frozenset(night_work[role] for role in (roles[one - 1], roles[other - 1]) if role in night_work)
    choose = blind_chooser(play, frozenset((one, other)), prey, idle)
    views, known, watched = seen_by(observer, new_game(preset, seed, roles), choose)
    swapped_views, swapped_known, swapped_watched = seen_by(observer, new_game(preset, seed, tuple(swapped)), choose)
    # Who has won depends on the roles, so one game may end sooner; up to there nothing differs.
    assert known and swapped_known
    assert all(a == b for a, b in zip(views, swapped_views, strict=False))
    assert all(a == b for a, b in zip(known, swapped_known, strict=False))
    # Not even whoever looks all the time learns that somebody is asked in secret.
    assert all(a == b for a, b in zip(watched, swapped_watched, strict=False))


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
    while state.phase in BY_ROLE and state.phase is not Phase.SHOT:
        state = apply(state, answer_all(state, lambda request: random_action(request, rng)))
    return state


def without_news(state: GameState) -> list[Observation]:
    """What every seat sees, but for events: of these, those of the night rightly differ for a wolf or a witch."""
    return [replace(observe(state, seat), events=()) for seat in state.preset.seats]


def knows_nothing_of_the_night(state: GameState, seat: int) -> bool:
    return state.role_of(seat) is Role.VILLAGER or (state.role_of(seat) is Role.HUNTER and seat != state.night.poisoned)


@given(ELECTED, seeds, seeds, seeds, seeds, st.data())
@settings(max_examples=150, deadline=None)
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


def test_a_game_that_is_over_asks_nobody_and_shows_its_result():
    state = play_random(TEST_PRESETS[0], 1, 1)
    assert winner(state) is not None and pending(state) == ()
    assert all(observe(state, seat).request is None for seat in state.preset.seats)
    assert all(observe(state, seat).events[-1].kind is EventKind.GAME_OVER for seat in state.preset.seats)
