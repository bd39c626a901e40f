"""A load -> how many groups more, and the reason told where the load holds them back."""

import pytest

from algo.rollouts.pacing import Load, more_groups

IDLE = dict(running=0, waiting=0, slots=100, kv_cache=0.0, unclaimed=0)


@pytest.mark.parametrize(
    ("load", "playing", "fresh", "room", "count", "reason"),
    [
        ({}, 0, 8, 8, 8, None),  # a run begins: nothing is known yet
        ({}, 4, 0, 0, 0, None),  # no room: nothing to explain
        ({"running": 10, "kv_cache": 0.1}, 4, 0, 8, 4, None),  # at most twice what there is, until its load shows
        ({"running": 50, "kv_cache": 0.1}, 6, 0, 4, 4, None),  # half full: as many again would fill it
        ({"running": 80, "kv_cache": 0.1}, 8, 0, 4, 2, "80 of 100 sequences"),
        ({"running": 20, "kv_cache": 0.75}, 10, 0, 5, 2, "75% of vLLM's KV cache"),
        ({"running": 80, "kv_cache": 0.1}, 8, 3, 4, 0, "80 of 100"),  # those begun now take the places
        ({"running": 150, "kv_cache": 0.95}, 8, 0, 4, 0, "150 of 100"),
        ({"running": 20, "waiting": 6}, 8, 0, 4, 0, "6 requests wait in vLLM behind 20"),
        ({"running": 20, "waiting": 5}, 8, 0, 4, 4, None),  # some always wait a moment
        ({"unclaimed": 3}, 8, 0, 4, 0, "3 rollouts wait for a runner"),
    ],
)
def test_groups_follow_the_load(load, playing, fresh, room, count, reason):
    found, why = more_groups(Load(**IDLE | load), playing, fresh, room, fullest_kv_cache=0.9)
    assert found == count
    assert why is None if reason is None else reason in why
