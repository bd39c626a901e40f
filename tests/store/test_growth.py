"""What is asked again and again costs the same however many games are kept: counted in steps of SQLite."""

import asyncio

import pytest
from agentlightning import EnqueueRolloutRequest, Rollout

from store.hub.database.opening import opened_store

pytest_plugins = ("tests.support.hub.hub_backends",)

FEW, MANY = 600, 6000


@pytest.fixture(scope="module")
def hubs(tmp_path_factory):
    """Where a hub of few and one of many finished games are, by their number."""
    paths = {number: tmp_path_factory.mktemp("hub") / "hub.sqlite3" for number in (FEW, MANY)}
    for number, path in paths.items():
        asyncio.run(fill(path, number))
    return paths


async def fill(path, number):
    async with opened_store(path) as store:
        await store.collections.rollouts.insert([finished(n) for n in range(number)])
        for name in ("used", "unused", "latest"):
            await store.update_resources(name, {})


def finished(n):
    status = "failed" if n % 10 == 0 else "succeeded"
    return Rollout(
        rollout_id=f"ro-{n}", input=1, status=status, start_time=float(n), end_time=n + 0.5, resources_id="used"
    )


async def steps(store, call):
    """Of SQLite's machine, in tens."""
    counted = 0

    def count():
        nonlocal counted
        counted += 1

    connection = store.collections.database._connection
    connection.set_progress_handler(count, 10)
    try:
        await call(store)
    finally:
        connection.set_progress_handler(None, 0)
    return counted


CLOSED = ["succeeded", "failed", "cancelled"]
CALLS = {
    "newest 50 finished": lambda store: store.query_rollouts(
        status_in=CLOSED, sort_by="end_time", sort_order="desc", limit=50
    ),
    "newest 50 running, as the stock page sorts": lambda store: store.query_rollouts(
        status_in=["succeeded", "failed"], sort_by="start_time", sort_order="desc", limit=50
    ),
    "how many of a state": lambda store: store.query_rollouts(status_in=["succeeded"], limit=1),
    "statistics": lambda store: store.statistics(),
    "overdue ones": lambda store: store.close_overdue(),
    "empty queue": lambda store: store.dequeue_many_rollouts(limit=5),
    "enqueue": lambda store: store.enqueue_many_rollouts([EnqueueRolloutRequest(input=1)]),
    "resources that nobody uses": lambda store: store.collections.delete_unused(1e18),
    "wait for one": lambda store: store.wait_for_rollouts(rollout_ids=["ro-7"], timeout=0),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
async def test_it_does_not_grow_with_the_games_that_are_kept(hubs, call):
    costs = []
    for number in (FEW, MANY):
        async with opened_store(hubs[number]) as store:
            costs.append(await steps(store, call))
    assert costs[1] <= 1.2 * costs[0] + 20


async def test_a_page_of_several_states_is_what_it_would_be_if_all_were_sorted(hubs):
    async with opened_store(hubs[MANY]) as store:
        everything = list(await store.query_rollouts(status_in=["failed", "succeeded"], sort_by="end_time"))
        assert len(everything) == MANY
        for order, expected in (("asc", everything), ("desc", everything[::-1])):
            page = await store.query_rollouts(
                status_in=["succeeded", "failed", "failed"], sort_by="end_time", sort_order=order, limit=30, offset=15
            )
            assert [one.rollout_id for one in page] == [one.rollout_id for one in expected[15:45]]
            assert page.total == MANY


async def test_numbers_are_right_after_all_that_happens_to_games(store):
    await store.enqueue_many_rollouts([EnqueueRolloutRequest(input=n) for n in range(5)])
    taken = await store.dequeue_many_rollouts(limit=3)
    await store.update_attempt(taken[0].rollout_id, taken[0].attempt.attempt_id, status="succeeded")
    await store.update_rollout(taken[1].rollout_id, status="cancelled")
    await store.collections.compact_counts(more_than=0)
    await store.update_rollout(taken[2].rollout_id, status="failed")
    await store.enqueue_many_rollouts([EnqueueRolloutRequest(input=n) for n in range(2)])
    for status, number in {"queuing": 4, "preparing": 0, "succeeded": 1, "cancelled": 1, "failed": 1}.items():
        assert (await store.query_rollouts(status_in=[status], limit=1)).total == number
    assert (await store.statistics())["total_rollouts"] == 7 and (await store.statistics())["total_attempts"] == 3
