"""What is asked again and again costs the same however many games are kept: counted in steps of SQLite."""

import json

import pytest
from agentlightning import EnqueueRolloutRequest

from store.sql.lightning_store import SqlLightningStore
from store.sql.sqlite import SqliteDatabase

FEW, MANY = 600, 6000
GAME = {"rollout_id": "", "input": 1, "start_time": 0.0, "end_time": 0.0, "status": "succeeded", "config": {}}


@pytest.fixture(scope="module")
def hubs(tmp_path_factory):
    """A hub of few and one of many finished games, by their number."""
    stores = {}
    for number in (FEW, MANY):
        database = SqliteDatabase(tmp_path_factory.mktemp("hub") / "hub.sqlite3")
        stores[number] = SqlLightningStore(database, scan_debounce_seconds=1000)
        insert_finished(database, number)
    yield stores
    for store in stores.values():
        store.collections.database._connection.close()


def insert_finished(database, number):
    connection = database._connection
    for n in range(number):
        status = "failed" if n % 10 == 0 else "succeeded"
        game = {**GAME, "rollout_id": f"ro-{n}", "status": status, "start_time": float(n), "end_time": n + 0.5}
        connection.execute(
            "INSERT INTO rollouts (rollout_id, start_time, end_time, status, document) VALUES (?, ?, ?, ?, ?)",
            [game["rollout_id"], game["start_time"], game["end_time"], status, json.dumps(game)],
        )


async def steps(store, call):
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
    "oldest 50 failed": lambda store: store.query_rollouts(status_in=["failed"], sort_by="end_time", limit=50),
    "newest 50 of all": lambda store: store.query_rollouts(sort_by="start_time", sort_order="desc", limit=50),
    "first 50 of all": lambda store: store.query_rollouts(limit=50),
    "how many of a state": lambda store: store.query_rollouts(status_in=["succeeded"], limit=1),
    "statistics": lambda store: store.statistics(),
    "overdue ones": lambda store: store.close_overdue(),
    "empty queue": lambda store: store.dequeue_many_rollouts(limit=5),
    "enqueue": lambda store: store.enqueue_many_rollouts([EnqueueRolloutRequest(input=1)]),
    "wait for one": lambda store: store.wait_for_rollouts(rollout_ids=["ro-7"], timeout=0),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
async def test_it_does_not_grow_with_the_games_that_are_kept(hubs, call):
    few, many = [await steps(hubs[number], call) for number in (FEW, MANY)]
    assert many <= 1.2 * few + 20


async def test_a_page_of_several_states_is_what_it_would_be_if_all_were_sorted(hubs):
    store = hubs[MANY]
    everything = list(await store.query_rollouts(status_in=["failed", "succeeded"], sort_by="end_time"))
    assert len(everything) == MANY
    for order, expected in (("asc", everything), ("desc", everything[::-1])):
        page = await store.query_rollouts(
            status_in=["succeeded", "failed", "failed"], sort_by="end_time", sort_order=order, limit=30, offset=15
        )
        assert [one.rollout_id for one in page] == [one.rollout_id for one in expected[15:45]]
        assert page.total == MANY


async def test_numbers_are_right_after_all_that_happens_to_games(tmp_path):
    store = SqlLightningStore(SqliteDatabase(tmp_path / "hub.sqlite3"))
    await store.enqueue_many_rollouts([EnqueueRolloutRequest(input=n) for n in range(5)])
    taken = await store.dequeue_many_rollouts(limit=3)
    await store.update_attempt(taken[0].rollout_id, taken[0].attempt.attempt_id, status="succeeded")
    await store.update_rollout(taken[1].rollout_id, status="cancelled")
    connection = store.collections.database._connection
    connection.execute(
        "DROP TABLE counts"
    )  # as in a database of an earlier version, which is counted when it is opened
    for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
        connection.execute(f"DROP TRIGGER {name}")
    await store.close()
    store = SqlLightningStore(SqliteDatabase(tmp_path / "hub.sqlite3"))
    await store.update_rollout(taken[2].rollout_id, status="failed")
    for status, number in {"queuing": 2, "preparing": 0, "succeeded": 1, "cancelled": 1, "failed": 1}.items():
        assert (await store.query_rollouts(status_in=[status], limit=1)).total == number
    assert (await store.statistics())["total_rollouts"] == 5 and (await store.statistics())["total_attempts"] == 3
    await store.close()
