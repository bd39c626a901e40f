"""What both databases promise below the store: transactions, values that they hold, files that they refuse."""

import asyncio
import json
import sqlite3

import pytest
from agentlightning import Rollout, Span
from agentlightning.types import Worker

from store.hub.database.database import DatabaseUnusable
from store.hub.database.opening import opened_store
from store.hub.database.sqlite import APPLICATION_ID, SqliteDatabase

pytest_plugins = ("tests.support.hub.hub_backends",)


def workers(*ids, **fields):
    return [Worker(worker_id=worker_id, **fields) for worker_id in ids]


async def ids(collection):
    return [worker.worker_id for worker in await collection.query()]


async def test_a_span_comes_back_with_every_attribute_and_unknown_field(ours):
    attributes = {"text": "\u2028 狼人杀 \U0001f43a \x00", "flag": True, "count": 2**62, "share": 0.1, "ids": [1, 2]}
    span = Span.from_attributes(attributes=attributes, rollout_id="r", attempt_id="a", sequence_id=1, name="n")
    span = Span.model_validate({**span.model_dump(), "kind": "extra", "start_time": 1.7e9, "end_time": None})
    await ours.spans.insert([span])
    (stored,) = await ours.spans.query()
    assert stored == span
    assert type(stored.attributes["flag"]) is bool and type(stored.attributes["share"]) is float


@pytest.mark.parametrize("bad", [float("nan"), float("-inf"), object(), "\ud800", json.loads("[" * 200 + "]" * 200)])
async def test_what_no_reader_of_json_accepts_is_refused(ours, bad):
    deep = json.loads("[" * 99 + "]" * 99)
    await ours.rollouts.insert([Rollout(rollout_id="good", input=deep, start_time=1.0)])
    with pytest.raises(ValueError, match="Rollout cannot be stored"):
        await ours.rollouts.insert([Rollout(rollout_id="bad", input={"x": [bad]}, start_time=1.0)])
    assert [rollout.input for rollout in await ours.rollouts.query()] == [deep]


async def test_equal_items_keep_their_order_and_nothing_counts_as_the_end_of_time(ours):
    await ours.workers.insert(
        [*workers("a", "b", last_busy_time=2.0), *workers("c"), *workers("d", last_busy_time=1.0)]
    )
    for order, expected in (("asc", "dabc"), ("desc", "cabd")):
        found = await ours.workers.query(sort={"name": "last_busy_time", "order": order})
        assert "".join(worker.worker_id for worker in found) == expected
    with pytest.raises(ValueError, match="workers have no field 'heartbeat_stats'"):
        await ours.workers.query(sort={"name": "heartbeat_stats", "order": "asc"})


async def test_what_reads_sees_no_change_that_begins_after_it(ours, engine):
    await ours.workers.insert(workers("a"))
    inside, go_on = asyncio.Event(), asyncio.Event()

    async def read_twice():
        async with ours.atomic(mode="r"):
            before = await ids(ours.workers)
            inside.set()
            await go_on.wait()
            return before, await ids(ours.workers)

    reading = asyncio.create_task(read_twice())
    await inside.wait()
    writing = asyncio.create_task(ours.workers.insert(workers("b")))
    await (writing if engine == "postgres" else asyncio.sleep(0))  # only there does one not wait for the other
    go_on.set()
    assert await reading == (["a"], ["a"])
    await writing
    assert await ids(ours.workers) == ["a", "b"]


async def test_a_file_is_one_file_for_its_owner_only(tmp_path):
    path = tmp_path / "deep" / "hub.sqlite3"
    async with opened_store(path) as store:
        await store.enqueue_rollout(input=1)
    assert [file.name for file in path.parent.iterdir()] == ["hub.sqlite3"]
    assert path.stat().st_mode & 0o077 == path.parent.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda path: sqlite_file(path, "CREATE TABLE mine (x)"), "not a hub"),
        (
            lambda path: sqlite_file(path, f"PRAGMA application_id={APPLICATION_ID}", "PRAGMA user_version=99"),
            "version 99.*export",
        ),
    ],
)
async def test_a_file_that_is_no_hub_s_is_refused_and_left_alone(tmp_path, make, reason):
    path = tmp_path / "hub.sqlite3"
    make(path)
    before = path.read_bytes()
    with pytest.raises(DatabaseUnusable, match=rf"hub.sqlite3: .*{reason}"):
        await SqliteDatabase(path).connect()
    assert path.read_bytes() == before


def sqlite_file(path, *statements):
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement)
    connection.close()
