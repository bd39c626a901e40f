"""The LightningStore contract and what ours adds to it, on both databases, in process."""

import asyncio
import time

import pytest
from agentlightning import LLM, EnqueueRolloutRequest, RolloutConfig, Span

from store.errors import Conflict, UnknownId
from store.hub.database.opening import opened_store
from store.schema import IDEMPOTENCY_KEY
from tests.support.waiting import until

pytest_plugins = ("tests.support.hub.hub_backends",)

LONG_AGO = 1.0


def llm(model="m"):
    return {"policy": LLM(endpoint="http://localhost:1/v1", model=model)}


def config(**fields):
    return RolloutConfig(**{"max_attempts": 2, "retry_condition": ["failed", "timeout", "unresponsive"], **fields})


def tasks(number):
    return [EnqueueRolloutRequest(input=n, config=config()) for n in range(number)]


def key(attempted):
    return attempted.rollout_id, attempted.attempt.attempt_id


def span(attempted, sequence_id=1, **fields):
    fields = {"span_id": f"{sequence_id:016x}", "name": "turn", **fields}
    rollout_id, attempt_id = key(attempted)
    return Span.from_attributes(
        attributes={"n": sequence_id}, rollout_id=rollout_id, attempt_id=attempt_id, sequence_id=sequence_id, **fields
    )


async def taken(store, worker_id=None, **fields):
    """A rollout that a runner has just taken."""
    await store.enqueue_rollout(input={"n": 1}, config=config(**fields))
    return await store.dequeue_rollout(worker_id=worker_id)


async def states(store, attempted):
    """Of the rollout, and of its latest attempt."""
    stored = await store.get_rollout_by_id(attempted.rollout_id)
    return stored.status, stored.attempt.status


async def end(store, attempted, status):
    return await store.update_attempt(*key(attempted), status=status)


async def spans_of(store, rollout, **query):
    return [(s.attempt_id, s.sequence_id) for s in await store.query_spans(rollout.rollout_id, **query)]


# Enqueue and dequeue


async def test_an_enqueued_task_keeps_all_its_fields(store):
    bare = await store.enqueue_rollout(input=None)
    assert (bare.config, bare.mode, bare.resources_id) == (RolloutConfig(), None, None)
    resources = await store.add_resources(llm())
    latest = await store.add_resources(llm())
    rollout = await store.enqueue_rollout(
        input={"a": [1]}, mode="val", resources_id=resources.resources_id, config=config(), metadata={"k": "v"}
    )
    assert (rollout.status, rollout.input, rollout.mode, rollout.metadata) == ("queuing", {"a": [1]}, "val", {"k": "v"})
    assert (rollout.config, rollout.resources_id, rollout.end_time) == (config(), resources.resources_id, None)
    assert await store.get_rollout_by_id(rollout.rollout_id) == rollout
    assert list(await store.query_attempts(rollout.rollout_id)) == []
    assert (await store.enqueue_rollout(input=None)).resources_id == latest.resources_id


async def test_first_in_first_out_over_single_and_many(store):
    await store.enqueue_rollout(input="first")
    assert [rollout.input for rollout in await store.enqueue_many_rollouts(tasks(3))] == [0, 1, 2]
    assert (await store.dequeue_rollout()).input == "first"
    assert [rollout.input for rollout in await store.dequeue_many_rollouts(limit=2)] == [0, 1]
    assert [rollout.input for rollout in await store.dequeue_many_rollouts(limit=2)] == [2]
    assert await store.dequeue_rollout() is None
    assert list(await store.dequeue_many_rollouts(limit=2)) == list(await store.enqueue_many_rollouts([])) == []


async def test_start_rollout_skips_the_queue(store):
    attempted = await store.start_rollout(input={"n": 1}, mode="test", config=config(), worker_id="w")
    assert (attempted.status, attempted.attempt.sequence_id, attempted.attempt.worker_id) == ("preparing", 1, "w")
    assert await store.dequeue_rollout() is None
    assert (await store.get_worker_by_id("w")).current_rollout_id == attempted.rollout_id


# Enqueueing again


def keyed(key, input=1):
    return EnqueueRolloutRequest(input=input, metadata={IDEMPOTENCY_KEY: key})


async def test_a_repeated_enqueue_adds_nothing(store):
    first = await store.enqueue_many_rollouts([keyed("a"), keyed("b", 2), keyed("a")])
    assert first[0] == first[2] != first[1]
    await store.dequeue_rollout()
    again = await store.enqueue_many_rollouts([keyed("b", 2), keyed("c", 3), keyed("a")])
    assert [rollout.rollout_id for rollout in again][::2] == [first[1].rollout_id, first[0].rollout_id]
    assert [rollout.status for rollout in again] == ["queuing", "queuing", "preparing"]
    assert [rollout.input for rollout in await store.dequeue_many_rollouts(limit=9)] == [2, 3]
    assert (await store.enqueue_rollout(input=1, metadata={IDEMPOTENCY_KEY: "a"})).rollout_id == first[0].rollout_id


async def test_a_key_cannot_stand_for_two_tasks(store):
    await store.enqueue_many_rollouts([keyed("a", {"x": 1, "y": [2.0]})])
    await store.enqueue_many_rollouts([keyed("a", {"y": [2.0], "x": 1})])
    for requests in ([keyed("b"), keyed("a", 2)], [keyed("b"), keyed("b", 2)]):
        with pytest.raises(Conflict, match="another input"):
            await store.enqueue_many_rollouts(requests)
    with pytest.raises(ValueError, match="must be text"):
        await store.enqueue_rollout(input=1, metadata={IDEMPOTENCY_KEY: 7})
    assert (await store.query_rollouts()).total == 1


async def test_a_key_with_a_character_that_a_database_cannot_find_again_is_refused(store):
    with pytest.raises(ValueError, match="cannot store the value"):
        await store.enqueue_many_rollouts([keyed("a\0b")])
    assert (await store.query_rollouts()).total == 0


@pytest.mark.parametrize("ended", ["cancelled", "failed"])
async def test_a_game_that_was_taken_back_or_failed_gives_its_key_free(store, ended):
    (taken_back,) = await store.enqueue_many_rollouts([keyed("a")])
    await store.update_rollout(taken_back.rollout_id, status=ended)
    (anew,) = await store.enqueue_many_rollouts([keyed("a")])
    (repeated,) = await store.enqueue_many_rollouts([keyed("a")])
    assert anew.rollout_id == repeated.rollout_id != taken_back.rollout_id and anew.status == "queuing"


# Attempts, ends and retries


async def test_the_first_span_means_running_and_the_report_statuss_it(store):
    attempted = await taken(store)
    await store.add_span(span(attempted))
    assert await states(store, attempted) == ("running", "running")
    assert (await store.get_latest_attempt(attempted.rollout_id)).last_heartbeat_time >= attempted.attempt.start_time
    ended = await end(store, attempted, "succeeded")
    assert ended.status == "succeeded" and ended.end_time >= ended.start_time
    stored = await store.get_rollout_by_id(attempted.rollout_id)
    assert stored.status == "succeeded" and stored.end_time >= stored.start_time


async def test_a_failed_attempt_is_retried_at_the_end_of_the_queue_as_often_as_allowed(store):
    attempted = await taken(store)
    await store.enqueue_rollout(input="other")
    await end(store, attempted, "failed")
    assert await states(store, attempted) == ("requeuing", "failed")
    assert (await store.dequeue_rollout()).input == "other"
    again = await store.dequeue_rollout()
    assert (again.rollout_id, again.attempt.sequence_id, again.status) == (attempted.rollout_id, 2, "preparing")
    await store.update_attempt(attempted.rollout_id, "latest", metadata={"reason": "why"})
    assert [one.metadata for one in await store.query_attempts(attempted.rollout_id)] == [None, {"reason": "why"}]
    await end(store, again, "failed")
    stored = await store.get_rollout_by_id(attempted.rollout_id)
    assert stored.status == "failed" and stored.end_time is not None
    assert await store.dequeue_rollout() is None


async def test_only_the_latest_attempt_moves_the_rollout(store):
    first = await taken(store)
    await end(store, first, "failed")
    second = await store.dequeue_rollout()
    await store.add_span(span(first, 5))
    await store.update_attempt(*key(first), metadata={"late": True})
    assert await states(store, first) == ("preparing", "preparing")
    await end(store, second, "succeeded")
    assert await states(store, first) == ("succeeded", "succeeded")


async def test_what_no_longer_waits_is_not_given_out_and_what_was_put_back_is_once(store):
    attempted, cancelled = await taken(store), await store.enqueue_rollout(input=1)
    await store.update_rollout(cancelled.rollout_id, status="cancelled")
    await store.update_rollout(attempted.rollout_id, status="queuing")
    await store.update_rollout(attempted.rollout_id, status="requeuing")
    assert [rollout.rollout_id for rollout in await store.dequeue_many_rollouts(limit=5)] == [attempted.rollout_id]


async def test_unknown_ids(store):
    attempted, other = await taken(store), await taken(store)
    foreign = (attempted.rollout_id, other.attempt.attempt_id)
    astray = [span(attempted).model_copy(update=change) for change in (
        {"rollout_id": "ro-gone"}, {"attempt_id": "at-gone"}, {"attempt_id": foreign[1]}, {"attempt_id": "latest"}
    )]  # fmt: skip
    calls = [
        store.update_rollout("ro-gone", status="cancelled"),
        store.update_rollout(attempted.rollout_id, resources_id="rs-gone"),
        store.enqueue_rollout(input=1, resources_id="rs-gone"),
        store.start_rollout(input=1, resources_id="rs-gone"),
        store.start_attempt("ro-gone"),
        *(store.update_attempt(*ids, status="failed") for ids in (("ro-gone", "latest"), foreign)),
        *(store.get_next_span_sequence_id(*ids) for ids in (("ro-gone", "latest"), foreign)),
        *map(store.add_span, astray),
        *(store.add_many_spans([span(attempted), one]) for one in astray),
    ]
    for call in calls:
        with pytest.raises(UnknownId):
            await call
    assert await store.get_rollout_by_id("ro-gone") is await store.get_latest_attempt("ro-gone") is None
    assert list(await store.query_attempts("ro-gone")) == list(await store.query_spans("ro-gone")) == []
    assert await store.get_resources_by_id("rs-gone") is await store.get_worker_by_id("w-gone") is None
    assert await spans_of(store, attempted) == [] and (await store.query_rollouts()).total == 2


# Closed states stay (the stock store's do not)


@pytest.mark.parametrize("closed", ["succeeded", "failed", "cancelled"])
async def test_a_closed_rollout_stays_closed(store, closed):
    attempted = await taken(store)
    first = await store.update_rollout(attempted.rollout_id, status=closed)
    await store.update_rollout(attempted.rollout_id, status=closed)  # sent again, since its answer was lost
    for late in {"succeeded", "failed", "cancelled", "queuing", "requeuing", "running"} - {closed}:
        with pytest.raises(Conflict, match=f"{attempted.rollout_id} is {closed} and cannot become {late}"):
            await store.update_rollout(attempted.rollout_id, status=late, metadata={"said": "later"})
    with pytest.raises(Conflict, match="closed"):
        await store.start_attempt(attempted.rollout_id)
    second = await store.update_rollout(attempted.rollout_id, metadata={"said": "alone"})
    assert (second.status, second.end_time, second.metadata) == (closed, first.end_time, {"said": "alone"})
    await store.add_span(span(attempted))
    await end(store, attempted, "failed" if closed == "succeeded" else "succeeded")  # its runner knows nothing of it
    assert (await states(store, attempted))[0] == closed
    assert await store.dequeue_rollout() is None


@pytest.mark.parametrize("closed", ["succeeded", "failed", "timeout"])
async def test_a_closed_attempt_stays_closed_and_its_spans_are_stored(store, closed):
    attempted = await taken(store)
    first = await end(store, attempted, closed)
    before = await states(store, attempted)
    await end(store, attempted, closed)
    for late in {"succeeded", "failed", "timeout", "running", "unresponsive"} - {closed}:
        with pytest.raises(Conflict, match=f"{first.attempt_id} of .* is {closed} and cannot become {late}"):
            await end(store, attempted, late)
    await store.add_span(span(attempted))
    second = await store.update_attempt(*key(attempted), last_heartbeat_time=1.0)
    assert (second.status, second.end_time) == (closed, first.end_time) and first.end_time is not None
    assert await states(store, attempted) == before and len(await spans_of(store, attempted)) == 1
    again = await store.dequeue_rollout()  # a late span does not strand a game that waits for its next attempt
    assert (again and again.rollout_id) == (None if closed == "succeeded" else attempted.rollout_id)


async def test_a_silent_attempt_may_come_back_while_its_game_waits(store):
    attempted = await taken(store)
    await end(store, attempted, "unresponsive")
    assert await states(store, attempted) == ("requeuing", "unresponsive")
    await store.add_span(span(attempted))
    assert await states(store, attempted) == ("running", "running")
    assert await store.dequeue_rollout() is None
    await end(store, attempted, "succeeded")
    assert await states(store, attempted) == ("succeeded", "succeeded")


@pytest.mark.parametrize("tries", [1, 2])
async def test_a_silent_attempt_that_was_replaced_or_was_the_last_does_not_come_back(store, tries):
    attempted = await taken(store, max_attempts=tries)
    await end(store, attempted, "unresponsive")
    await store.dequeue_rollout()
    before = await states(store, attempted)
    await store.add_span(span(attempted))
    with pytest.raises(Conflict, match="and cannot become"):
        await end(store, attempted, "succeeded")
    assert await states(store, attempted) == before
    first, *_ = await store.query_attempts(attempted.rollout_id)
    assert first.status == "unresponsive"


# The watchdog (test_watchdog.py has its times)


@pytest.mark.parametrize(("limit", "state"), [("timeout_seconds", "timeout"), ("unresponsive_seconds", "unresponsive")])
async def test_an_attempt_that_takes_too_long_or_is_silent_is_replaced(store, limit, state):
    attempted = await taken(store, **{limit: 0})
    assert await states(store, attempted) == ("requeuing", state)
    assert (await store.dequeue_rollout()).rollout_id == attempted.rollout_id
    assert await states(store, attempted) == ("failed", state)  # two attempts are allowed


async def test_without_limits_no_attempt_times_out_and_time_before_the_start_does_not_count(store):
    for limits in ({}, {"unresponsive_seconds": 100}):
        attempted = await taken(store, **limits)
        await store.update_attempt(attempted.rollout_id, "latest", last_heartbeat_time=LONG_AGO)
        assert await states(store, attempted) == ("preparing", "preparing")


# Spans


async def test_spans_come_back_in_sequence(store):
    first, second = await taken(store), await taken(store)
    sent = [span(first, sequence_id) for sequence_id in (2, 1, 3)]
    assert [await store.add_span(sent[0]), *await store.add_many_spans([*sent[1:], span(second)])][:3] == sent
    assert list(await store.query_spans(first.rollout_id)) == sorted(sent, key=lambda one: one.sequence_id)
    page = await store.query_spans(first.rollout_id, sort_order="desc", limit=1, offset=1)
    assert ([s.sequence_id for s in page], page.total) == ([2], 3)
    assert await states(store, second) == ("running", "running")
    assert list(await store.add_many_spans([])) == []


async def test_a_span_that_is_there_is_kept_as_it_is(store):
    attempted = await taken(store)
    await store.add_span(span(attempted, 1, span_id="same"))
    assert await store.add_span(span(attempted, 7, span_id="same")) is None
    added = await store.add_many_spans([span(attempted, 8, span_id="same"), span(attempted, 2, span_id="new")])
    assert [s.span_id for s in added] == ["new"]
    assert [n for _, n in await spans_of(store, attempted)] == [1, 2]


async def test_sequence_ids_go_on_from_what_was_issued_or_seen(store):
    attempted, other = await taken(store), await taken(store)
    ids, other_ids = key(attempted), (other.rollout_id, "latest")
    assert [await store.get_next_span_sequence_id(*ids) for _ in range(2)] == [1, 2]
    await store.add_span(span(attempted, 9))
    assert await store.get_next_span_sequence_id(*ids) == 10
    await store.add_span(span(attempted, 3))
    assert list(await store.get_many_span_sequence_ids([ids, other_ids, ids])) == [11, 1, 12]
    assert list(await store.get_many_span_sequence_ids([])) == []
    issued = await asyncio.gather(*(store.get_next_span_sequence_id(*ids) for _ in range(50)))
    assert sorted(issued) == list(range(13, 63))


@pytest.mark.parametrize("sequence_id", [2**53 + 1, 2**64, -1])
async def test_a_sequence_number_that_not_every_reader_can_hold_is_refused(store, sequence_id):
    attempted = await taken(store)
    odd = span(attempted).model_copy(update={"sequence_id": sequence_id})
    for add in (store.add_span(odd), store.add_many_spans([span(attempted), odd])):
        with pytest.raises(ValueError, match="2\\*\\*53"):
            await add
    assert await spans_of(store, attempted) == []
    await store.add_span(span(attempted).model_copy(update={"sequence_id": 2**53}))
    with pytest.raises(ValueError, match="2\\*\\*53"):
        await store.get_next_span_sequence_id(*key(attempted))


async def test_spans_by_attempt_and_filters(store):
    attempted = await taken(store)
    await store.add_many_spans([span(attempted, 1, trace_id="t1"), span(attempted, 2, trace_id="t2", parent_id="p")])
    await end(store, attempted, "failed")
    second = await store.dequeue_rollout()
    await store.add_span(span(second, 3, trace_id="t1"))
    first_id, second_id = attempted.attempt.attempt_id, second.attempt.attempt_id
    either = {"parent_id": "p", "span_id": f"{3:016x}", "filter_logic": "or"}
    for query, found in (
        ({}, [1, 2, 3]),
        ({"attempt_id": first_id}, [1, 2]),
        ({"attempt_id": "latest"}, [3]),
        ({"trace_id": "t1"}, [1, 3]),
        ({"trace_id_contains": "2"}, [2]),
        ({"name": "turn", "span_id_contains": "3"}, [3]),
        (either, [2, 3]),
        ({"attempt_id": first_id, **either}, [2]),
    ):
        expected = [(second_id if n == 3 else first_id, n) for n in found]
        assert await spans_of(store, attempted, **query) == expected, query


# Queries


async def test_query_rollouts(store):
    waiting, running, done = [one.rollout_id for one in await store.enqueue_many_rollouts(tasks(3))]
    await store.update_rollout(done, status="succeeded")
    await store.update_rollout(running, status="requeuing")
    either = {"status_in": ["succeeded"], "rollout_id_in": [waiting], "filter_logic": "or"}
    for query, found in (
        ({}, [waiting, running, done]),
        ({"status_in": ["queuing", "succeeded"]}, [waiting, done]),
        ({"status_in": []}, []),
        ({"rollout_id_in": [done, *(f"ro-{n}" for n in range(40_000))]}, [done]),
        ({"rollout_id_contains": running[3:]}, [running]),
        (either, [waiting, done]),
        ({"sort_by": "start_time", "sort_order": "desc", "limit": 2}, [done, running]),
        ({"sort_by": "end_time", "limit": 1}, [done]),
    ):
        assert [rollout.rollout_id for rollout in await store.query_rollouts(**query)] == found, query
    page = await store.query_rollouts(limit=1, offset=1)
    assert ([rollout.input for rollout in page], page.total) == ([1], 3)


async def test_queried_rollouts_carry_their_latest_attempt(store):
    attempted = await taken(store, max_attempts=3)
    for _ in range(2):
        await end(store, attempted, "failed")
        attempted = await store.dequeue_rollout(worker_id="w")
    await store.enqueue_rollout(input="waits")
    stored, waits = await store.query_rollouts()
    assert stored == attempted and stored.attempt.sequence_id == 3 and not hasattr(waits, "attempt")
    assert (stored.attempt.worker_id, await store.get_latest_attempt(stored.rollout_id)) == ("w", attempted.attempt)
    for query, found in (({}, [1, 2, 3]), ({"sort_order": "desc"}, [3, 2, 1]), ({"limit": 1, "offset": 1}, [2])):
        attempts = await store.query_attempts(attempted.rollout_id, **query)
        assert [attempt.sequence_id for attempt in attempts] == found


# Waiting


async def test_waiting_returns_what_is_closed_in_time(store):
    first, second = await store.enqueue_many_rollouts(tasks(2))
    await store.update_rollout(second.rollout_id, status="cancelled")
    ids = [first.rollout_id, second.rollout_id, "ro-gone"]
    for timeout in (0, 0.01):
        assert [one.input for one in await store.wait_for_rollouts(rollout_ids=ids, timeout=timeout)] == [1]
    assert await store.wait_for_rollouts(rollout_ids=[], timeout=None) == []


async def test_waiting_ends_when_the_last_one_is_closed_and_all_that_wait_share_one_poller(store):
    ids = [rollout.rollout_id for rollout in await store.enqueue_many_rollouts(tasks(2))]
    waits = [asyncio.create_task(store.wait_for_rollouts(rollout_ids=ids, timeout=None)) for _ in range(30)]
    await until(lambda: store.completions._poller is not None)
    await store.update_rollout(ids[0], status="succeeded")
    pollers = [task for task in asyncio.all_tasks() if "Completions._poll " in repr(task.get_coro())]
    assert len(pollers) == 1 and not any(waiting.done() for waiting in waits)
    await store.update_rollout(ids[1], status="succeeded")
    for closed in await asyncio.wait_for(asyncio.gather(*waits), 20):
        assert [(rollout.rollout_id, rollout.status) for rollout in closed] == [(one, "succeeded") for one in ids]


# Resources and workers


async def test_resources_are_versioned_and_the_last_one_touched_is_the_latest(store, monkeypatch):
    assert await store.get_latest_resources() is None
    first = await store.add_resources(llm("one"))
    monkeypatch.setattr(time, "time", lambda: LONG_AGO)  # whatever the clock says
    second = await store.update_resources("rs-named", llm("two"))
    assert (first.version, second.version, second.resources_id) == (1, 1, "rs-named")
    assert await store.get_latest_resources() == second
    again = await store.update_resources(first.resources_id, llm("three"))
    assert (again.version, again.create_time, again.resources["policy"].model) == (2, first.create_time, "three")
    assert await store.get_latest_resources() == again == await store.get_resources_by_id(first.resources_id)
    assert [update.resources_id for update in await store.query_resources()] == [first.resources_id, "rs-named"]
    assert [one.resources_id for one in await store.query_resources(resources_id_contains="named")] == ["rs-named"]


# All or nothing, and for good


class Broken(BaseException):
    """As a cancellation is."""


CALLS = {
    "enqueue": lambda store, game: store.enqueue_many_rollouts([*tasks(2), keyed("k")]),
    "take": lambda store, game: store.dequeue_many_rollouts(limit=2, worker_id="w"),
    "start": lambda store, game: store.start_rollout(input=1, worker_id="w"),
    "spans": lambda store, game: store.add_many_spans([span(game, 1), span(game, 2)]),
    "success": lambda store, game: end(store, game, "succeeded"),
    "failure": lambda store, game: end(store, game, "failed"),
    "cancel": lambda store, game: store.update_rollout(game.rollout_id, status="cancelled"),
    "another attempt": lambda store, game: store.start_attempt(game.rollout_id, worker_id="w2"),
}


async def contents(store):
    one = store.collections
    kept = (one.rollouts, one.attempts, one.spans, one.resources, one.workers)
    counts = [(await store.query_rollouts(status_in=[status], limit=1)).total for status in ("queuing", "preparing")]
    return [[list(await each.query()) for each in kept], await one.rollout_queue.size(), counts]


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
async def test_a_call_that_breaks_off_at_any_statement_has_done_nothing(store, call):
    """As where the hub is killed there: what was not committed is undone."""
    game = await taken(store, worker_id="w")
    await store.enqueue_many_rollouts(tasks(2))
    database, before, left = store.collections.database, await contents(store), 0

    def breaking(run):
        async def run_or_break(*statement):
            nonlocal left
            left -= 1
            if left < 0:
                raise Broken
            return await run(*statement)

        return run_or_break

    for allowed in range(1000):
        left = allowed
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(database, "_run", breaking(database._run))
            patched.setattr(database, "_run_each", breaking(database._run_each))
            try:
                await call(store, game)
                break
            except Broken:
                pass
        assert await contents(store) == before, f"after {allowed} statements"
    assert allowed > 1 and await contents(store) != before


async def test_all_is_there_after_reopening(address):
    async with opened_store(address) as store:
        resources = await store.add_resources(llm())
        attempted = await taken(store, worker_id="w")
        await store.add_span(span(attempted, 4))
        waits, ended = await store.enqueue_many_rollouts([keyed("a"), keyed("b")])
        await store.update_rollout(ended.rollout_id, status="succeeded")
        before = [list(await store.query_rollouts()), await store.get_worker_by_id("w")]

    async with opened_store(address) as store:
        assert [list(await store.query_rollouts()), await store.get_worker_by_id("w")] == before
        assert await store.get_latest_resources() == resources
        assert await spans_of(store, attempted) == [(attempted.attempt.attempt_id, 4)]
        assert await store.get_next_span_sequence_id(*key(attempted)) == 5
        again = await store.enqueue_many_rollouts([keyed("a"), keyed("b")])
        assert [(one.rollout_id, one.status) for one in again] == [
            (waits.rollout_id, "queuing"), (ended.rollout_id, "succeeded")
        ]  # fmt: skip
        assert [one.rollout_id for one in await store.dequeue_many_rollouts(limit=9)] == [waits.rollout_id]
        await end(store, attempted, "succeeded")
        assert await states(store, attempted) == ("succeeded", "succeeded")
