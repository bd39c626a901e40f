"""What must hold for every preset, seed and choice: states are values, and nothing hidden shows.

That every step is in order is checked in ``test_endurance``.
"""

import copy
import random
from functools import partial

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from runners.werewolf.game import (
    Action,
    EventKind,
    IllegalAction,
    Observation,
    Option,
    apply,
    choices,
    legal,
    observe,
    pending,
)
from tests.support.game.game_playing import (
    TEST_PRESETS,
    Step,
    answer_all,
    herd_steps,
    random_action,
    random_steps,
)
from tests.support.game.two_worlds import draw_worlds

presets = st.sampled_from(TEST_PRESETS)
seeds = st.integers(0, 10**6)
players = st.sampled_from((random_steps, herd_steps))


# --- states are values ------------------------------------------------------------------------------------------------


@given(presets, seeds, seeds, players)
@settings(max_examples=60, deadline=None)
def test_the_order_of_the_actions_does_not_matter(preset, seed, play_seed, play):
    for before, actions, after in play(preset, seed, play_seed):
        assert apply(before, dict(reversed(actions.items()))) == after


@given(presets, seeds, seeds, st.data())
@settings(max_examples=80, deadline=None)
def test_apply_refuses_wrong_missing_and_illegal_actions_and_never_changes_its_state(preset, seed, play_seed, data):
    history = [before for before, _, _ in data.draw(players)(preset, seed, play_seed)]
    state = data.draw(st.sampled_from(history))
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
