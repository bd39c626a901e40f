"""What agentlightning's collections promise, on its memory backend and on ours.

Where the two differ the test names the backend. The differences: ours undoes a call that fails and a transaction that
is broken off, gives out copies, takes no field that is not a column, and keeps equal items in order.
"""

import asyncio
import json
import sqlite3
import threading

import pytest
from agentlightning import Attempt, Rollout, RolloutConfig, Span
from agentlightning.store.collection.base import DuplicatedPrimaryKeyError
from agentlightning.types import Worker

from store.hub.database.database import DatabaseAway, DatabaseUnusable
from store.hub.database.opening import opened_collections
from store.hub.database.sqlite import APPLICATION_ID, SqliteDatabase, as_its_only_hub

pytest_plugins = ("tests.support.hub.hub_backends",)

OUR_ID = f"PRAGMA application_id={APPLICATION_ID}"


def workers(*ids, **fields):
    return [Worker(worker_id=worker_id, **fields) for worker_id in ids]


def attempt(rollout_id, attempt_id, sequence_id=1, **fields):
    return Attempt(rollout_id=rollout_id, attempt_id=attempt_id, sequence_id=sequence_id, start_time=1.0, **fields)


async def ids(collection, **query):
    return [worker.worker_id for worker in await collection.query(**query)]


# Collections


async def test_what_was_inserted_comes_back_equal_and_in_order(collections):
    sent = [
        Rollout(rollout_id="b", input={"deal": [1, 2.5, "狼", None, True]}, start_time=2.0, mode="train"),
        Rollout(rollout_id="a", input="text", start_time=1.0, config=RolloutConfig(timeout_seconds=3, max_attempts=2)),
    ]
    await collections.rollouts.insert(sent)
    assert list(await collections.rollouts.query()) == sent
    assert await collections.rollouts.size() == 2
    assert await collections.rollouts.get({"rollout_id": {"exact": "a"}}) == sent[1]
    assert await collections.rollouts.get({"rollout_id": {"exact": "c"}}) is None


async def test_a_span_comes_back_with_every_attribute_and_unknown_field(collections):
    attributes = {"text": "\u2028 狼人杀 \U0001f43a \x00", "flag": True, "count": 2**62, "share": 0.1, "ids": [1, 2]}
    span = Span.from_attributes(attributes=attributes, rollout_id="r", attempt_id="a", sequence_id=1, name="n")
    span = Span.model_validate({**span.model_dump(), "kind": "extra", "start_time": 1.7e9, "end_time": None})
    await collections.spans.insert([span])
    (stored,) = await collections.spans.query()
    assert stored == span
    assert type(stored.attributes["flag"]) is bool and type(stored.attributes["share"]) is float


async def test_the_collections_name_their_keys_and_types(collections):
    assert list(collections.spans.primary_keys()) == ["rollout_id", "attempt_id", "span_id"]
    assert collections.attempts.item_type() is Attempt
    assert collections.rollout_queue.item_type() is str


@pytest.mark.parametrize(
    ("condition", "matches"),
    [
        ({"status": {"exact": "idle"}}, "ac"),
        ({"worker_id": {"exact": "a"}, "status": {"exact": "busy"}}, ""),
        ({"worker_id": {"exact": "a"}, "status": {"exact": "busy"}, "_aggregate": "or"}, "ab"),
        ({"worker_id": {"within": ["a", "d", "x"]}}, "ad"),
        ({"worker_id": {"within": []}}, ""),
        ({"current_rollout_id": {"contains": "ro-1"}}, "bd"),
        ({"current_rollout_id": {"contains": "%"}}, "d"),
        ({"current_rollout_id": {"exact": None}}, "abcd"),
        ({"current_rollout_id": {"within": ["ro-1", None]}}, "abc"),
        ({"last_busy_time": {"exact": 2.0}}, "b"),
        ({"last_busy_time": {"within": [2.0, 7]}}, "b"),
        ({"last_busy_time": {"exact": 2}}, "b"),
        ({"last_busy_time": {"exact": "2.0"}}, ""),
        ({"last_busy_time": {"contains": "2"}}, ""),
        ({"status": {"exact": "idle"}, "worker_id": {"contains": "b"}, "_aggregate": "or"}, "abc"),
        ({"_must": {"status": {"exact": "idle"}}, "worker_id": {"within": ["b", "c"]}, "_aggregate": "or"}, "c"),
        ({"_must": [{"status": {"exact": "idle"}}, {"worker_id": {"exact": "a"}}]}, "a"),
        ({"_must": {"worker_id": {"exact": "b"}}}, "b"),
        ({"worker_id": {"exact": "a'; DROP TABLE workers; --"}}, ""),
        ({}, "abcd"),
        (None, "abcd"),
    ],
)
async def test_filters(collections, condition, matches):
    await collections.workers.insert(
        [
            Worker(worker_id="a", status="idle"),
            Worker(worker_id="b", status="busy", current_rollout_id="ro-1", last_busy_time=2.0),
            Worker(worker_id="c", status="idle"),
            Worker(worker_id="d", status="unknown", current_rollout_id="ro-1%"),
        ]
    )
    result = await collections.workers.query(filter=condition)
    assert "".join(worker.worker_id for worker in result) == matches
    assert result.total == len(matches)
    first = await collections.workers.get(filter=condition)
    assert (first.worker_id if first else "") == matches[:1]


async def test_an_empty_or_matches_nothing_in_the_stock_backend_and_everything_in_ours(collections, backend):
    await collections.workers.insert(workers("a"))
    assert await ids(collections.workers, filter={"_aggregate": "or", "status": {}}) == (
        [] if backend == "memory" else ["a"]
    )


@pytest.mark.parametrize(
    "condition",
    [
        {"worker_id": {"like": "a"}},
        {"worker_id": {"exact": "a"}, "_aggregate": "xor"},
        {"_must": [{"worker_id": {"exact": "a"}}, {"worker_id": {"exact": "b"}}]},
    ],
)
async def test_a_wrong_filter_is_refused(collections, condition):
    await collections.workers.insert(workers("a"))
    with pytest.raises(ValueError, match=r"like|xor|exact"):
        await collections.workers.query(filter=condition)


async def test_our_backend_names_the_fields_that_can_be_searched_by(ours):
    collection = ours.workers
    with pytest.raises(ValueError, match=r"'heartbeat_stats'.*worker_id, status"):
        await collection.query(filter={"heartbeat_stats": {"exact": {}}})
    with pytest.raises(ValueError, match="'nonsense'"):
        await collection.query(sort={"name": "nonsense", "order": "asc"})


@pytest.mark.parametrize(
    ("field", "order", "expected"),
    [
        ("worker_id", "asc", "abcd"),
        ("worker_id", "desc", "dcba"),
        ("last_idle_time", "asc", "dbca"),  # None is the end of time
        ("last_idle_time", "desc", "cabd"),
        ("current_attempt_id", "asc", "cadb"),  # None is an empty text
        ("status", "asc", "dbca"),
        ("status", "desc", "abcd"),  # equal ones stay in the order in which they came, both ways
    ],
)
async def test_sort_orders(collections, field, order, expected):
    await collections.workers.insert(
        [
            Worker(worker_id="d", status="busy", last_idle_time=1.0, current_attempt_id="x"),
            Worker(worker_id="b", status="idle", last_idle_time=2.0, current_attempt_id="y"),
            Worker(worker_id="c", status="idle"),
            Worker(worker_id="a", status="unknown", current_attempt_id="w"),
        ]
    )
    sort = {"name": field, "order": order}
    assert "".join(await ids(collections.workers, sort=sort)) == expected
    assert (await collections.workers.get(sort=sort)).worker_id == expected[0]


async def test_a_sort_order_must_be_asc_or_desc_and_have_a_name(collections):
    with pytest.raises(ValueError, match="sideways"):
        await collections.workers.query(sort={"name": "worker_id", "order": "sideways"})
    with pytest.raises(ValueError, match="name"):
        await collections.workers.query(sort={"order": "asc"})


@pytest.mark.parametrize(
    ("limit", "offset", "expected"),
    [(-1, 0, "abcde"), (2, 0, "ab"), (2, 3, "de"), (2, 4, "e"), (2, 9, ""), (-1, 3, "de"), (0, 0, "")],
)
@pytest.mark.parametrize("sort", [None, {"name": "worker_id", "order": "asc"}])
async def test_pages_count_all_that_matches(collections, limit, offset, expected, sort):
    await collections.workers.insert(workers(*"abcde"))
    page = await collections.workers.query(sort=sort, limit=limit, offset=offset)
    assert "".join(worker.worker_id for worker in page) == expected
    assert (page.total, page.limit, page.offset) == (5, limit, offset)


@pytest.mark.parametrize(("limit", "offset"), [(-2, 0), (1, -1), (2**70, 0), (1, 2**70)])
async def test_our_backend_refuses_pages_that_make_no_sense(ours, limit, offset):
    with pytest.raises(ValueError, match="limit must be"):
        await ours.workers.query(limit=limit, offset=offset)


async def test_a_key_is_unique_over_all_its_fields(collections):
    await collections.attempts.insert([attempt("r", "a"), attempt("r", "b", 2), attempt("s", "a")])
    with pytest.raises(DuplicatedPrimaryKeyError, match=r"rollout_id='r'.*attempt_id='b'"):
        await collections.attempts.insert([attempt("r", "b")])
    assert await collections.attempts.size() == 3


async def test_a_key_given_twice_in_one_call_is_refused_and_nothing_is_inserted(collections):
    with pytest.raises(DuplicatedPrimaryKeyError):
        await collections.workers.insert(workers("a", "b", "a"))
    assert await ids(collections.workers) == []


async def test_an_insert_that_fails_halfway_leaves_nothing_in_our_backend(collections, backend):
    await collections.workers.insert(workers("b"))
    with pytest.raises(DuplicatedPrimaryKeyError):
        await collections.workers.insert(workers("a", "b", "c"))
    assert set(await ids(collections.workers)) == ({"a", "b"} if backend == "memory" else {"b"})


async def test_an_item_of_another_type_is_refused(collections):
    with pytest.raises(TypeError, match="Worker"):
        await collections.workers.insert([attempt("r", "a")])


async def test_update_replaces_all_fields_or_only_those_named(collections):
    await collections.workers.insert([Worker(worker_id="a", status="busy", heartbeat_stats={"playing": 1})])
    (updated,) = await collections.workers.update(
        [Worker(worker_id="a", status="idle", last_idle_time=3.0)], update_fields=["status"]
    )
    assert updated == Worker(worker_id="a", status="idle", heartbeat_stats={"playing": 1})
    assert await collections.workers.get() == updated
    await collections.workers.update(workers("a"))
    assert await collections.workers.get() == Worker(worker_id="a")


async def test_an_update_moves_nothing(collections):
    await collections.workers.insert(workers(*"abc"))
    await collections.workers.update(workers("a", status="busy"))
    assert await ids(collections.workers) == ["a", "b", "c"]


async def test_what_is_not_there_is_not_updated(collections, backend):
    await collections.workers.insert(workers("a"))
    for unknown in (workers("gone", status="busy"), workers("a", "gone", status="busy")):
        with pytest.raises(ValueError, match=r"Item does not exist with primary key.*'gone'"):
            await collections.workers.update(unknown)
    if backend != "memory":  # the stock backend has changed the first one
        assert await collections.workers.get() == Worker(worker_id="a")


async def test_upsert_in_its_three_ways(collections):
    a, b = await collections.workers.upsert(workers("a", "b", status="idle"))
    assert (a.status, b.status) == ("idle", "idle")
    (kept,) = await collections.workers.upsert(workers("a", status="busy"), update_fields=[])
    assert kept.status == "idle"
    (changed,) = await collections.workers.upsert(
        [Worker(worker_id="a", status="busy", last_busy_time=1.0)], update_fields=["status"]
    )
    assert changed == Worker(worker_id="a", status="busy")
    (replaced,) = await collections.workers.upsert([Worker(worker_id="a", last_busy_time=1.0)])
    assert replaced == await collections.workers.get() == Worker(worker_id="a", last_busy_time=1.0)
    assert await collections.workers.size() == 2


async def test_our_backend_gives_out_copies(collections, backend):
    await collections.workers.insert([Worker(worker_id="a", heartbeat_stats={"n": 1})])
    (await collections.workers.get()).heartbeat_stats["n"] = 2
    assert (await collections.workers.get()).heartbeat_stats == {"n": 2 if backend == "memory" else 1}


@pytest.mark.parametrize("bad", [float("nan"), float("-inf"), object(), {1, 2}, "\ud800"])
async def test_our_backend_takes_nothing_that_json_cannot_hold(ours, bad):
    collection = ours.rollouts
    with pytest.raises(ValueError, match=r"Rollout cannot be stored|surrogates"):
        await collection.insert([Rollout(rollout_id="a", input={"x": [bad]}, start_time=1.0)])
    with pytest.raises(ValueError, match="Rollout cannot be stored"):
        await collection.insert([Rollout(rollout_id="a", input={}, start_time=float("nan"))])
    assert await collection.size() == 0


def nested(levels):
    return json.loads("[" * levels + "]" * levels)


async def test_what_is_stored_can_be_read_again_however_deep_it_is(ours):
    collection = ours.rollouts
    deep, wide = nested(99), [[{}] * 200]
    for n, value in enumerate([deep, wide]):
        await collection.insert([Rollout(rollout_id=str(n), input=value, start_time=1.0)])
    with pytest.raises(ValueError, match="more than 100 levels deep"):
        await collection.insert([Rollout(rollout_id="x", input=nested(100), start_time=1.0)])
    assert [rollout.input for rollout in await collection.query()] == [deep, wide]


async def test_a_number_that_is_too_large_for_a_column_is_refused(ours):
    with pytest.raises(ValueError, match="63 bits"):
        await ours.attempts.insert([attempt("r", "a", 2**63)])


# The queue


async def test_first_in_first_out(collections):
    queue = collections.rollout_queue
    assert await queue.enqueue(["b", "a", "c"]) == ["b", "a", "c"]
    await queue.enqueue(["d"])
    assert await queue.peek() == ["b"] and await queue.peek(2) == ["b", "a"] and await queue.size() == 4
    assert await queue.dequeue() == ["b"]
    assert await queue.dequeue(2) == ["a", "c"]
    await queue.enqueue(["e"])
    assert await queue.peek(9) == ["d", "e"]
    assert await queue.dequeue(9) == ["d", "e"]
    assert (await queue.dequeue(), await queue.peek(), await queue.size()) == ([], [], 0)


async def test_who_comes_back_to_the_queue_waits_behind_the_others(collections):
    queue = collections.rollout_queue
    await queue.enqueue(["a", "b"])
    (first,) = await queue.dequeue()
    await queue.enqueue([first])
    assert await queue.dequeue(2) == ["b", "a"]
    await queue.enqueue(["c"])  # also once the queue has been empty
    assert await queue.peek() == ["c"]


async def test_the_queue_knows_what_waits_and_may_hold_it_twice(collections):
    queue = collections.rollout_queue
    await queue.enqueue(["a", "a"])
    assert await queue.has("a") and not await queue.has("b")
    assert await queue.dequeue() == ["a"]
    assert await queue.has("a")


@pytest.mark.parametrize("limit", [0, -1])
async def test_no_limit_no_items(collections, limit):
    await collections.rollout_queue.enqueue(["a"])
    assert (await collections.rollout_queue.dequeue(limit), await collections.rollout_queue.peek(limit)) == ([], [])


async def test_the_queue_holds_texts(collections):
    for use in (collections.rollout_queue.has, lambda item: collections.rollout_queue.enqueue([item])):
        with pytest.raises(TypeError, match="int"):
            await use(1)


async def test_ours_takes_out_of_the_middle(ours):
    queue = ours.rollout_queue
    await queue.enqueue(["a", "b", "a", "c"])
    await queue.discard(["a", "x"])
    assert await queue.dequeue(9) == ["b", "c"]


# Key and value


async def test_get_set_pop(collections):
    values = collections.span_sequence_ids
    assert (await values.get("a"), await values.get("a", 7), await values.has("a")) == (None, 7, False)
    await values.set("a", 1)
    await values.set("a", 2)
    assert (await values.get("a", 7), await values.has("a"), await values.size()) == (2, True, 1)
    assert (await values.pop("a"), await values.pop("a"), await values.pop("a", 9)) == (2, None, 9)
    assert await values.size() == 0


async def test_counting_up_and_raising(collections):
    values = collections.span_sequence_ids
    assert [await values.inc("a", 2), await values.inc("a", 3), await values.get("a")] == [2, 5, 5]
    assert [await values.chmax("a", 4), await values.chmax("a", 9), await values.chmax("b", 1)] == [5, 9, 1]
    assert (await values.get("a"), await values.get("b")) == (9, 1)


async def test_only_numbers_are_counted(collections):
    values = collections.span_sequence_ids
    for use in (values.inc, values.chmax):
        for amount in ("1", True):
            with pytest.raises(TypeError, match="must be numeric"):
                await use("a", amount)
    assert not await values.has("a")


# Transactions


async def test_a_transaction_that_fails_is_undone_in_our_backend(collections, backend):
    await collections.workers.insert(workers("before"))
    with pytest.raises(RuntimeError, match="broken off"):
        async with collections.atomic(mode="rw", commit=True) as inside:
            await inside.workers.insert(workers("a"))
            await inside.workers.update(workers("before", status="busy"))
            await inside.rollout_queue.enqueue(["r"])
            await inside.span_sequence_ids.inc("r", 1)
            raise RuntimeError("broken off")
    left = (await ids(collections.workers), await collections.rollout_queue.size())
    assert left == ((["before", "a"], 1) if backend == "memory" else (["before"], 0))
    if backend != "memory":
        assert (await collections.workers.get()).status == "unknown"
        assert not await collections.span_sequence_ids.has("r")


async def test_a_cancelled_transaction_is_undone(ours):
    inside, go_on = asyncio.Event(), asyncio.Event()

    async def change():
        async with ours.atomic():
            await ours.workers.insert(workers("a"))
            inside.set()
            await go_on.wait()

    task = asyncio.create_task(change())
    await inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await ids(ours.workers) == []


async def test_a_part_that_fails_undoes_the_whole(ours):
    with pytest.raises(RuntimeError, match="all of it is undone"):
        async with ours.atomic():
            await ours.workers.insert(workers("a"))
            with pytest.raises(DuplicatedPrimaryKeyError):
                async with ours.atomic():
                    await ours.workers.insert(workers("b", "a"))
    assert await ids(ours.workers) == []


async def test_a_part_is_undone_with_the_whole(ours):
    with pytest.raises(RuntimeError, match="whole"):
        async with ours.atomic():
            async with ours.atomic():
                await ours.workers.insert(workers("a"))
            raise RuntimeError("whole")
    assert await ids(ours.workers) == []


async def test_execute_gives_the_callback_s_result_and_undoes_its_error(collections, backend):
    async def add(inside):
        await inside.workers.insert(workers("a"))
        return "done"

    async def add_and_fail(inside):
        await inside.workers.insert(workers("b"))
        raise LookupError("no")

    assert await collections.execute(add, commit=True, labels=["workers"]) == "done"
    with pytest.raises(LookupError):
        await collections.execute(add_and_fail, commit=True, labels=["workers"])
    assert await ids(collections.workers) == (["a", "b"] if backend == "memory" else ["a"])


async def test_a_transaction_for_reading_refuses_to_write_in_ours(ours):
    with pytest.raises(RuntimeError, match="begun for reading"):
        async with ours.atomic(mode="r"):
            await ours.workers.insert(workers("a"))
    await ours.workers.insert(workers("a"))
    assert await ours.workers.size() == 1


@pytest.mark.parametrize("mode", ["r", "rw"])
async def test_inside_a_snapshot_nothing_changes_and_others_see_only_what_is_finished(collections, mode, backend):
    await collections.workers.insert(workers("a"))
    inside, go_on = asyncio.Event(), asyncio.Event()

    async def read_twice():
        async with collections.atomic(mode=mode, snapshot=True, labels=["workers"]) as snapshot:
            before = await ids(snapshot.workers)
            if mode == "rw":
                await snapshot.workers.insert(workers("mine"))
            inside.set()
            await go_on.wait()
            return before, await ids(snapshot.workers)

    async def write():
        async with collections.atomic(mode="rw", labels=["workers"]):
            await collections.workers.insert(workers("b"))
            return await ids(collections.workers)

    reading = asyncio.create_task(read_twice())
    await inside.wait()
    writing = asyncio.create_task(write())
    await (writing if backend == "postgres" else asyncio.sleep(0))  # only there does one not wait for the other
    go_on.set()
    mine = ["mine"] if mode == "rw" else []
    assert await reading == (["a"], ["a", *mine])
    assert await writing == ["a", *(mine if backend != "postgres" else []), "b"]


@pytest.mark.parametrize("backend", ["memory", "sqlite"])
async def test_transactions_of_several_threads_do_not_mix(collections):
    """Each thread reads a number and writes the next one, which loses counts unless others are kept out."""
    rounds, threads = 20, 4

    async def count_up():
        for _ in range(rounds):
            async with collections.atomic(mode="rw", snapshot=True, labels=["span_sequence_ids"]) as inside:
                value = await inside.span_sequence_ids.get("n", 0)
                await asyncio.sleep(0)
                await inside.span_sequence_ids.set("n", value + 1)

    running = [threading.Thread(target=asyncio.run, args=(count_up(),)) for _ in range(threads)]
    for thread in running:
        thread.start()
    await asyncio.gather(*(asyncio.to_thread(thread.join) for thread in running))
    assert await collections.span_sequence_ids.get("n") == rounds * threads


async def test_of_two_snapshots_that_contradict_each_other_one_fails_in_postgres(postgres):
    async def count_up(started, go_on):
        async with postgres.atomic(mode="rw", snapshot=True) as inside:
            value = await inside.span_sequence_ids.get("n", 0)
            started.set()
            await go_on.wait()
            await inside.span_sequence_ids.set("n", value + 1)

    await postgres.span_sequence_ids.set("n", 0)
    started, go_on = [asyncio.Event(), asyncio.Event()], asyncio.Event()
    both = [asyncio.create_task(count_up(one, go_on)) for one in started]
    await asyncio.gather(*(one.wait() for one in started))
    go_on.set()
    first, second = await asyncio.gather(*both, return_exceptions=True)
    (failed,) = [one for one in (first, second) if one is not None]
    assert isinstance(failed, DatabaseAway) and failed.conflict and failed.undone
    assert await postgres.span_sequence_ids.get("n") == 1


# What lasts


async def test_everything_is_there_after_reopening(address):
    async with opened_collections(address) as collections:
        await collections.workers.insert(workers("a"))
        await collections.rollout_queue.enqueue(["r2", "r1"])
        await collections.span_sequence_ids.inc("r1", 5)
    async with opened_collections(address) as collections:
        assert await ids(collections.workers) == ["a"]
        assert await collections.rollout_queue.dequeue(9) == ["r2", "r1"]
        assert await collections.span_sequence_ids.inc("r1", 1) == 6


async def test_a_file_is_one_file_for_its_owner_only(tmp_path):
    path = tmp_path / "deep" / "hub.sqlite3"
    async with opened_collections(path) as collections:
        await collections.workers.insert(workers("a"))
    assert [file.name for file in path.parent.iterdir()] == ["hub.sqlite3"]
    assert path.stat().st_mode & 0o077 == 0


async def test_a_file_that_was_just_being_made_is_made(tmp_path):
    connection = sqlite3.connect(tmp_path / "hub.sqlite3")
    connection.execute("PRAGMA journal_mode=WAL")
    connection.close()
    await SqliteDatabase(tmp_path / "hub.sqlite3").close()
    await SqliteDatabase(tmp_path / "hub.sqlite3").close()


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda path: path.write_text("my diary" * 200), "not a database"),
        (lambda path: path.mkdir(), "unable to open"),
        (lambda path: sqlite_file(path, "CREATE TABLE mine (x)"), "something else"),
        (
            lambda path: sqlite_file(path, f"PRAGMA application_id={APPLICATION_ID}", "PRAGMA user_version=99"),
            "version 99.*export",
        ),
    ],
)
def test_a_file_that_is_no_hub_s_is_refused_and_left_alone(tmp_path, make, reason):
    path = tmp_path / "hub.sqlite3"
    make(path)
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(DatabaseUnusable, match=rf"hub.sqlite3: .*{reason}"):
        SqliteDatabase(path)
    assert before is None or path.read_bytes() == before


def sqlite_file(path, *statements):
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement)
    connection.close()


def test_a_file_serves_one_hub_at_a_time(tmp_path):
    path = tmp_path / "hub.sqlite3"
    with as_its_only_hub(path):
        with pytest.raises(DatabaseUnusable, match=r"another hub is using .*hub.sqlite3;"), as_its_only_hub(path):
            pass
        with as_its_only_hub(tmp_path / "other.sqlite3"):
            pass
    with as_its_only_hub(path):
        pass
