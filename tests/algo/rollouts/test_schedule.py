"""Which groups make a step: whatever finishes when, each once, none too old, and without lag as they were begun."""

import random

from hypothesis import given
from hypothesis import strategies as st

from algo.rollouts.schedule import Group, Schedule


def run(per_step, lag, steps, luck, most=None, moves=lambda step: True):
    """Make a run's steps with groups that finish in a random order; yields (step, version, chosen groups)."""
    schedule, version, finished, begun_at = Schedule(per_step, lag, steps * per_step, most=most), 0, [], {}
    for step in range(steps):
        begun_at |= {group.number: version for group in schedule.begin(schedule.room, version)}
        assert len(schedule.open) <= (most or (lag + 1) * per_step)
        playing = [group.number for group in schedule.open if group.number not in finished]
        luck.shuffle(playing)
        while (chosen := schedule.choose(finished, version)) is None:
            finished.append(playing.pop())  # raises where even all that are in flight make no step
        schedule.take(chosen)
        yield step, version, {number: begun_at[number] for number in chosen}
        version += moves(step)
    assert not schedule.open


@given(st.integers(1, 5), st.integers(0, 4), st.integers(1, 12), st.integers(0, 10**6), st.none() | st.integers(0, 9))
def test_every_group_is_trained_on_once_and_never_too_old(per_step, lag, steps, seed, more):
    luck = random.Random(seed)
    seen = []
    most = None if more is None else per_step + more
    # Some steps change no weights.
    for _, version, chosen in run(per_step, lag, steps, luck, most, moves=lambda step: luck.random() < 0.7):
        assert len(chosen) == per_step and all(version - begun <= lag for begun in chosen.values())
        seen += chosen
    assert sorted(seen) == list(range(per_step * steps))


def test_those_that_finish_first_make_the_step_and_slow_ones_a_later_one():
    schedule = Schedule(2, 1, 8)
    schedule.begin(3, version=0)
    assert schedule.choose([2], version=0) is None
    assert schedule.choose([2, 0, 1], version=0) == [0, 2]
    schedule.take([0, 2])
    assert schedule.open == [Group(number=1, version=0)] and schedule.room == 3
    schedule.begin(2, version=1)
    # Group 1 would be too old in the step after: it is waited for, though two others have finished.
    assert schedule.choose([3, 4], version=1) is None
    assert schedule.choose([3, 4, 1], version=1) == [1, 3]


def test_a_later_process_goes_on_with_what_was_in_flight():
    schedule = Schedule(2, 1, 8, [Group(number=1, version=3)], begun=5)
    assert (schedule.room, schedule.begun) == (3, 5)
    assert [group.number for group in schedule.begin(3, version=4)] == [5, 6, 7]
    assert schedule.choose([5, 6, 7], version=4) is None
    assert schedule.choose([7, 6, 5, 1], version=4) == [1, 7]
