"""Who is in the pool: near copies leave, what games in flight meet stays, and servers change as little as they need."""

from itertools import pairwise

import pytest

from algo.league.pool import LeagueState
from algo.league.results import Match, past_name
from configs.sections.league import LeagueConfig

UNIFORM = LeagueConfig(every_steps=1, choice="uniform")


def pool_of(log_probs, size):
    """A pool that versions 0, 1, … joined in turn; log_probs: of each, the same for every token of the probe."""
    state = LeagueState()
    for version, value in enumerate(log_probs):
        state.join(version, [value, value], size)
    return state


def versions(members):
    return [member.version for member in members]


@pytest.mark.parametrize(
    ("log_probs", "size", "stay"),
    [
        ([-1.0, -2.0, -3.0], 3, [0, 1, 2]),
        # 2 is 0.1 from 1, and 1 as far from 2: the older goes; then 3 joins, to which 2 is nearest of all.
        ([-1.0, -2.0, -2.1, -4.0], 3, [0, 2, 3]),
        # A copy of the newest leaves, and one of the first.
        ([-1.0, -2.0, -4.0, -4.0], 3, [0, 1, 3]),
        ([-1.0, -1.0, -2.0, -4.0], 3, [0, 2, 3]),
        # The first and the newest stay, however alike they are.
        ([-1.0, -5.0, -1.0], 2, [0, 2]),
        ([-1.0, -2.0, -2.1, -4.0, -8.0], 2, [0, 4]),
    ],
)
def test_of_too_many_members_near_copies_leave(log_probs, size, stay):
    assert versions(pool_of(log_probs, size).members) == stay


def test_who_left_stays_for_as_long_as_games_in_flight_meet_it():
    """A group that was begun under version v may be trained on by the step that finds the policy at v + lag."""
    for lag in range(4):
        state = pool_of([-1.0, -2.0, -4.0], 2)  # 1 left at 2, so version 1 is the last that was met it under
        assert versions(state.left) == [1] and state.needed == {0, 1, 2}
        needed_until = 1 + lag
        for version in range(2, 8):
            state.drop_left(version, lag)
            assert (1 in state.needed) == (version <= needed_until), (lag, version)


def test_what_is_published_stays_until_the_policy_has_another_version_or_a_member_leaves():
    state = pool_of([-1.0, -2.0], 8)
    pfsp = LeagueConfig(every_steps=1)
    state.publish(1, pfsp, servers=0, seed=1)
    before = state.published.model_copy()
    assert before.servers == [] and set(before.shares) == {"past-000000", "past-000001"}
    state.count([Match("past-000000", "good", 1.0)], version=1)
    state.publish(1, pfsp, servers=0, seed=1)
    assert state.published == before
    state.publish(2, pfsp, servers=0, seed=1)
    assert state.published.shares["past-000000"] < before.shares["past-000000"]
    assert state.shares("newest") == {"past-000001": 1.0}
    state.join(2, [-4.0, -4.0], size=2)  # 1 leaves
    assert set(state.publish(2, pfsp, servers=0, seed=1).shares) == {"past-000000", "past-000002"}


def test_servers_hold_different_members_drawn_from_seed_and_version_alone():
    def play(seed):
        state, found = pool_of([-1.0, -2.0, -4.0, -8.0, -16.0], 8), []
        for version in range(5, 60):
            state.publish(version, UNIFORM, servers=2, seed=seed)
            found.append(state.published)
        return found

    first = play(seed=1)
    assert first == play(seed=1) != play(seed=2)
    for published in first:
        assert len(set(published.servers)) == 2
        assert published.shares == {past_name(version): 0.5 for version in published.servers}
    for before, after in pairwise(first):
        both = set(before.servers) & set(after.servers)
        assert all(before.servers.index(version) == after.servers.index(version) for version in both)
    assert {version for published in first for version in published.servers} == {0, 1, 2, 3, 4}
    state = pool_of([-1.0, -2.0], 8)
    for version, settings in ((1, UNIFORM), (2, LeagueConfig(every_steps=1, choice="newest"))):
        state.publish(version, settings, servers=2, seed=1)
        # One that is drawn no more leaves its server to the initial weights.
        assert sorted(state.published.servers) == [0, 1]
