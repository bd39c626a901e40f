"""The whole LightningStore contract on both databases, in process; agentlightning's own suite has its part of it."""

import asyncio
import time

import asyncpg
import pytest
import sqlalchemy as sa
from agentlightning import LLM, EnqueueRolloutRequest, RolloutConfig, Span

from store.errors import Conflict, UnknownId
from store.hub.database.lightning_store import SqlLightningStore
from store.hub.database.opening import opened_store
from store.hub.database.statements import Statement
from store.schema import IDEMPOTENCY_KEY

pytest_plugins = ("tests.support.hub.hub_backends",)

RETRY_ALWAYS = ["failed", "timeout", "unresponsive"]
LONG_AGO = 1.0


def llm(model="m"):
    return {"policy": LLM(endpoint="http://localhost:1/v1", model=model)}


def config(**fields):
    return RolloutConfig(**{"max_attempts": 2, "retry_condition": RETRY_ALWAYS, **fields})


def span(attempted, sequence_id=1, span_id=None, **fields):
    return Span.from_attributes(
        attributes={"n": sequence_id},
        rollout_id=attempted.rollout_id,
        attempt_id=attempted.attempt.attempt_id,
        sequence_id=sequence_id,
        span_id=span_id or f"{sequence_id:016x}",
        name="turn",
        **fields,
    )


async def taken(store, worker_id=None, **fields):
    """A rollout that a runner has just taken."""
    await store.enqueue_rollout(input={"n": 1}, config=config(**fields))
    return await store.dequeue_rollout(worker_id=worker_id)


async def status(store, rollout):
    return (await store.get_rollout_by_id(rollout.rollout_id)).status


async def end(store, attempted, status):
    return await store.update_attempt(attempted.rollout_id, attempted.attempt.attempt_id, status=status)


async def spans_of(store, rollout, **query):
    return [(s.attempt_id, s.sequence_id) for s in await store.query_spans(rollout.rollout_id, **query)]


@pytest.fixture
def store(our_store):
    return our_store


# Enqueue and dequeue


async def test_an_enqueued_task_waits_with_all_that_was_said_of_it(store):
    resources = await store.add_resources(llm())
    before = time.time()
    rollout = await store.enqueue_rollout(
        input={"a": [1]}, mode="val", resources_id=resources.resources_id, config=config(), metadata={"k": "v"}
    )
    assert (rollout.status, rollout.input, rollout.mode, rollout.metadata) == ("queuing", {"a": [1]}, "val", {"k": "v"})
    assert (rollout.config, rollout.resources_id) == (config(), resources.resources_id)
    assert before <= rollout.start_time <= time.time() and rollout.end_time is None
    assert await store.get_rollout_by_id(rollout.rollout_id) == rollout
    assert list(await store.query_attempts(rollout.rollout_id)) == []


async def test_what_is_left_out_has_defaults(store):
    rollout = await store.enqueue_rollout(input=None)
    assert (rollout.config, rollout.mode, rollout.resources_id) == (RolloutConfig(), None, None)
    await store.add_resources(llm())
    latest = await store.add_resources(llm())
    assert (await store.enqueue_rollout(input=None)).resources_id == latest.resources_id


async def test_first_in_first_out_over_single_and_many(store):
    first = await store.enqueue_rollout(input=0)
    many = await store.enqueue_many_rollouts([EnqueueRolloutRequest(input=n) for n in (1, 2, 3)])
    assert [rollout.input for rollout in many] == [1, 2, 3]
    assert len({rollout.rollout_id for rollout in (first, *many)}) == 4
    assert (await store.dequeue_rollout()).input == 0
    assert [rollout.input for rollout in await store.dequeue_many_rollouts(limit=2)] == [1, 2]
    assert [rollout.input for rollout in await store.dequeue_many_rollouts(limit=2)] == [3]
    assert await store.dequeue_rollout() is None
    assert list(await store.dequeue_many_rollouts(limit=2)) == []
    assert list(await store.enqueue_many_rollouts([])) == []


async def test_a_taken_rollout_is_preparing_and_has_its_first_attempt(store):
    attempted = await taken(store, worker_id="w")
    assert (attempted.status, attempted.attempt.status, attempted.attempt.sequence_id) == ("preparing", "preparing", 1)
    assert (attempted.attempt.worker_id, attempted.attempt.rollout_id) == ("w", attempted.rollout_id)
    assert await store.get_rollout_by_id(attempted.rollout_id) == attempted
    assert await store.get_latest_attempt(attempted.rollout_id) == attempted.attempt


async def test_a_task_cancelled_while_it_waits_is_not_given_out(store):
    first, second = await store.enqueue_many_rollouts([EnqueueRolloutRequest(input=n) for n in (1, 2)])
    await store.update_rollout(first.rollout_id, status="cancelled")
    assert [rollout.rollout_id for rollout in await store.dequeue_many_rollouts(limit=5)] == [second.rollout_id]


async def test_every_task_is_given_to_one_runner_only(store):
    await store.enqueue_many_rollouts([EnqueueRolloutRequest(input=n) for n in range(40)])
    batches = await asyncio.gather(*(store.dequeue_many_rollouts(limit=7, worker_id=f"w{n}") for n in range(8)))
    taken = [rollout.input for batch in batches for rollout in batch]
    assert sorted(taken) == list(range(40))


async def test_start_rollout_skips_the_queue(store):
    attempted = await store.start_rollout(input={"n": 1}, mode="test", config=config(), worker_id="w")
    assert (attempted.status, attempted.attempt.sequence_id, attempted.attempt.worker_id) == ("preparing", 1, "w")
    assert await store.dequeue_rollout() is None
    assert (await store.get_worker_by_id("w")).current_rollout_id == attempted.rollout_id


async def test_config_and_metadata_are_copied(store):
    settings, metadata = config(), {"k": 1}
    rollout = await store.enqueue_rollout(input=1, config=settings, metadata=metadata)
    settings.max_attempts, metadata["k"] = 9, 9
    stored = await store.get_rollout_by_id(rollout.rollout_id)
    assert (stored.config.max_attempts, stored.metadata) == (2, {"k": 1})


async def test_resources_that_are_not_there_are_refused(store):
    enqueue = store.enqueue_rollout(input=1, resources_id="rs-gone")
    with pytest.raises(UnknownId, match="'rs-gone'"):
        await enqueue
    with pytest.raises(UnknownId, match="'rs-gone'"):
        await store.start_rollout(input=1, resources_id="rs-gone")
    rollout = await store.enqueue_rollout(input=1)
    with pytest.raises(UnknownId, match="'rs-gone'"):
        await store.update_rollout(rollout.rollout_id, resources_id="rs-gone")
    assert (await store.query_rollouts()).total == 1


# Enqueueing again


def keyed(key, input=1):
    return EnqueueRolloutRequest(input=input, metadata={IDEMPOTENCY_KEY: key})


async def test_a_repeated_enqueue_adds_nothing(store):
    first = await store.enqueue_many_rollouts([keyed("a"), keyed("b", 2)])
    await store.dequeue_rollout()
    again = await store.enqueue_many_rollouts([keyed("b", 2), keyed("c", 3), keyed("a")])
    assert [rollout.rollout_id for rollout in again][::2] == [first[1].rollout_id, first[0].rollout_id]
    assert [rollout.status for rollout in again] == ["queuing", "queuing", "preparing"]
    assert [rollout.input for rollout in await store.dequeue_many_rollouts(limit=9)] == [2, 3]
    assert (await store.enqueue_rollout(input=1, metadata={IDEMPOTENCY_KEY: "a"})).rollout_id == first[0].rollout_id


async def test_a_key_twice_in_one_call_is_one_task(store):
    rollouts = await store.enqueue_many_rollouts([keyed("a"), keyed("b"), keyed("a")])
    assert rollouts[0] == rollouts[2] != rollouts[1]
    assert (await store.query_rollouts()).total == 2


async def test_many_keys_cost_no_more_statements_than_few(postgres, monkeypatch):
    store = SqlLightningStore(postgres.database, scan_debounce_seconds=1000)
    statements = 0

    def counted(method):
        async def call(*arguments, **options):
            nonlocal statements
            statements += 1
            return await method(*arguments, **options)

        return call

    for name in ("execute", "fetch", "executemany"):
        monkeypatch.setattr(asyncpg.Connection, name, counted(getattr(asyncpg.Connection, name)))
    numbers = []
    for size in (2, 100):
        statements = 0
        await store.enqueue_many_rollouts([keyed(f"{size}-{n}") for n in range(size)])
        numbers.append(statements)
    assert numbers[1] <= numbers[0]


async def test_a_key_cannot_stand_for_two_tasks(store):
    await store.enqueue_many_rollouts([keyed("a", {"x": 1, "y": [2.0]})])
    await store.enqueue_many_rollouts([keyed("a", {"y": [2.0], "x": 1})])
    for requests in ([keyed("b"), keyed("a", 2)], [keyed("b"), keyed("b", 2)]):
        with pytest.raises(Conflict, match="another input"):
            await store.enqueue_many_rollouts(requests)
    with pytest.raises(ValueError, match="must be text"):
        await store.enqueue_rollout(input=1, metadata={IDEMPOTENCY_KEY: 7})
    assert (await store.query_rollouts()).total == 1


async def test_keys_outlive_the_hub_and_the_game(address):
    async with opened_store(address) as store:
        (rollout,) = await store.enqueue_many_rollouts([keyed("a")])
        attempted = await store.dequeue_rollout()
        await end(store, attempted, "succeeded")
    async with opened_store(address) as store:
        (again,) = await store.enqueue_many_rollouts([keyed("a")])
        assert (again.rollout_id, again.status) == (rollout.rollout_id, "succeeded")
        assert await store.dequeue_rollout() is None


@pytest.mark.parametrize("ended", ["cancelled", "failed"])
async def test_a_game_that_was_taken_back_or_failed_gives_its_key_free(store, ended):
    (taken_back,) = await store.enqueue_many_rollouts([keyed("a")])
    await store.update_rollout(taken_back.rollout_id, status=ended)
    (anew,) = await store.enqueue_many_rollouts([keyed("a")])
    (repeated,) = await store.enqueue_many_rollouts([keyed("a")])
    assert anew.rollout_id == repeated.rollout_id != taken_back.rollout_id and anew.status == "queuing"


# Attempts, ends and retries


async def test_the_first_span_means_running_and_the_report_ends_it(store):
    attempted = await taken(store)
    await store.add_span(span(attempted))
    stored = await store.get_rollout_by_id(attempted.rollout_id)
    assert (stored.status, stored.attempt.status) == ("running", "running")
    assert stored.attempt.last_heartbeat_time >= attempted.attempt.start_time
    ended = await end(store, attempted, "succeeded")
    assert ended.status == "succeeded" and ended.end_time >= ended.start_time
    stored = await store.get_rollout_by_id(attempted.rollout_id)
    assert stored.status == "succeeded" and stored.end_time >= stored.start_time


async def test_latest_means_the_latest_attempt(store):
    attempted = await taken(store)
    await end(store, attempted, "failed")
    second = await store.dequeue_rollout()
    await store.update_attempt(attempted.rollout_id, "latest", metadata={"reason": "why"})
    first_stored, second_stored = await store.query_attempts(attempted.rollout_id)
    assert (first_stored.metadata, second_stored.metadata) == (None, {"reason": "why"})
    assert second_stored.attempt_id == second.attempt.attempt_id


async def test_a_failed_attempt_is_retried_at_the_end_of_the_queue_as_often_as_allowed(store):
    attempted = await taken(store)
    await store.enqueue_rollout(input="other")
    await end(store, attempted, "failed")
    assert await status(store, attempted) == "requeuing"
    assert (await store.dequeue_rollout()).input == "other"
    again = await store.dequeue_rollout()
    assert (again.rollout_id, again.attempt.sequence_id, again.status) == (attempted.rollout_id, 2, "preparing")
    await end(store, again, "failed")
    stored = await store.get_rollout_by_id(attempted.rollout_id)
    assert stored.status == "failed" and stored.end_time is not None
    assert await store.dequeue_rollout() is None


async def test_without_a_retry_condition_a_failure_is_final(store):
    attempted = await taken(store, retry_condition=[])
    await end(store, attempted, "failed")
    assert await status(store, attempted) == "failed"


async def test_only_the_latest_attempt_moves_the_rollout(store):
    first = await taken(store)
    await end(store, first, "failed")
    second = await store.dequeue_rollout()
    await store.add_span(span(first, 5))
    await store.update_attempt(first.rollout_id, first.attempt.attempt_id, metadata={"late": True})
    assert await status(store, first) == "preparing"
    await end(store, second, "succeeded")
    assert await status(store, first) == "succeeded"


async def test_start_attempt_replaces_the_attempt_by_hand(store):
    attempted = await taken(store)
    second = await store.start_attempt(attempted.rollout_id, worker_id="w2")
    assert (second.attempt.sequence_id, second.attempt.worker_id, second.status) == (2, "w2", "preparing")
    assert (await store.get_latest_attempt(attempted.rollout_id)).attempt_id == second.attempt.attempt_id


async def test_a_rollout_put_back_by_hand_waits_exactly_once(store):
    attempted = await taken(store)
    await store.update_rollout(attempted.rollout_id, status="queuing")
    await store.update_rollout(attempted.rollout_id, status="requeuing")
    assert [rollout.rollout_id for rollout in await store.dequeue_many_rollouts(limit=5)] == [attempted.rollout_id]


async def test_every_field_of_a_rollout_can_be_replaced_also_by_none(store):
    resources = await store.add_resources(llm())
    rollout = await store.enqueue_rollout(input=1, mode="train", metadata={"a": 1})
    changed = await store.update_rollout(
        rollout.rollout_id, input=2, mode=None, resources_id=None, config=config(max_attempts=5), metadata=None
    )
    assert (changed.input, changed.mode, changed.resources_id, changed.metadata) == (2, None, None, None)
    assert (changed.config.max_attempts, changed.status) == (5, "queuing")
    assert await store.get_rollout_by_id(rollout.rollout_id) == changed
    changed = await store.update_rollout(rollout.rollout_id, resources_id=resources.resources_id)
    assert (changed.resources_id, changed.input) == (resources.resources_id, 2)


async def test_an_illegal_status_is_refused_and_nothing_changes(store):
    attempted = await taken(store)
    with pytest.raises(ValueError, match="status"):
        await store.update_rollout(attempted.rollout_id, status="finished")
    assert await status(store, attempted) == "preparing"


async def test_an_illegal_attempt_status_changes_nothing(store):
    attempted = await taken(store)
    with pytest.raises(ValueError, match="status"):
        await end(store, attempted, "finished")
    assert (await store.get_latest_attempt(attempted.rollout_id)).status == "preparing"


async def test_unknown_ids(store):
    attempted = await taken(store)
    other = await taken(store)
    foreign = other.model_copy(update={"rollout_id": attempted.rollout_id})
    calls = [
        store.update_rollout("ro-gone", status="cancelled"),
        store.update_attempt("ro-gone", "latest", status="failed"),
        store.update_attempt(attempted.rollout_id, "at-gone", status="failed"),
        store.update_attempt(attempted.rollout_id, other.attempt.attempt_id, status="failed"),
        store.start_attempt("ro-gone"),
        store.add_span(span(attempted).model_copy(update={"rollout_id": "ro-gone"})),
        store.add_span(span(attempted).model_copy(update={"attempt_id": "at-gone"})),
        store.add_span(span(foreign)),
        store.add_many_spans([span(foreign)]),
    ]
    for call in calls:
        with pytest.raises(ValueError, match=r"not found|not exist|there is no|has no"):
            await call
    assert await store.get_rollout_by_id("ro-gone") is None
    assert await store.get_latest_attempt("ro-gone") is None
    assert list(await store.query_attempts("ro-gone")) == []
    assert list(await store.query_spans("ro-gone")) == []
    assert await store.get_resources_by_id("rs-gone") is None
    assert await store.get_worker_by_id("w-gone") is None
    assert await spans_of(store, attempted) == []


async def test_latest_stands_for_the_latest_attempt_also_where_sequence_numbers_are_given(store):
    attempted = await taken(store)
    assert await store.get_next_span_sequence_id(attempted.rollout_id, "latest") == 1
    assert await store.get_many_span_sequence_ids([(attempted.rollout_id, "latest")] * 2) == [2, 3]


@pytest.mark.parametrize("sequence_id", [2**53 + 1, 2**63 - 1, -1])
async def test_a_sequence_number_that_not_every_reader_can_hold_is_refused(store, sequence_id):
    attempted = await taken(store)
    odd = span(attempted).model_copy(update={"sequence_id": sequence_id})
    for add in (store.add_span(odd), store.add_many_spans([span(attempted), odd])):
        with pytest.raises(ValueError, match="2\\*\\*53"):
            await add
    assert await spans_of(store, attempted) == []
    await store.add_span(span(attempted).model_copy(update={"sequence_id": 2**53}))
    with pytest.raises(ValueError, match="2\\*\\*53"):
        await store.get_next_span_sequence_id(attempted.rollout_id, attempted.attempt.attempt_id)


async def test_an_attempt_that_does_not_exist_gets_no_sequence_numbers(store):
    attempted = await taken(store)
    for ids in (("ro-gone", "at-gone"), (attempted.rollout_id, "at-gone")):
        with pytest.raises(UnknownId, match=r"-gone"):
            await store.get_next_span_sequence_id(*ids)


# Closed states stay (the stock store's do not)


@pytest.mark.parametrize("closed", ["succeeded", "failed", "cancelled"])
@pytest.mark.parametrize("late", ["succeeded", "failed", "cancelled", "queuing", "requeuing", "running"])
async def test_a_closed_rollout_stays_closed(store, closed, late):
    attempted = await taken(store)
    first = await store.update_rollout(attempted.rollout_id, status=closed)
    if late == closed:  # a report that is sent again, since its answer was lost
        await store.update_rollout(attempted.rollout_id, status=late)
    else:
        with pytest.raises(Conflict, match=f"{attempted.rollout_id} stays {closed} and does not become {late}"):
            await store.update_rollout(attempted.rollout_id, status=late, metadata={"said": "later"})
    second = await store.update_rollout(attempted.rollout_id, metadata={"said": "alone"})
    assert (second.status, second.end_time, second.metadata) == (closed, first.end_time, {"said": "alone"})
    assert await store.dequeue_rollout() is None


@pytest.mark.parametrize("late", ["succeeded", "failed", "running"])
async def test_a_cancelled_game_is_not_revived_by_its_runner(store, late):
    attempted = await taken(store)
    await store.update_rollout(attempted.rollout_id, status="cancelled")
    await store.add_span(span(attempted))
    assert await status(store, attempted) == "cancelled"
    await end(store, attempted, late)
    assert await status(store, attempted) == "cancelled"


@pytest.mark.parametrize("closed", ["succeeded", "failed", "timeout"])
@pytest.mark.parametrize("late", ["succeeded", "failed", "timeout", "running", "unresponsive"])
async def test_a_closed_attempt_stays_closed(store, closed, late):
    attempted = await taken(store)
    first = await end(store, attempted, closed)
    before = await status(store, attempted)
    if late == closed:
        second = await end(store, attempted, late)
    else:
        with pytest.raises(
            Conflict, match=f"{first.attempt_id} of rollout .* stays {closed} and does not become {late}"
        ):
            await end(store, attempted, late)
        second = await store.update_attempt(first.rollout_id, first.attempt_id, last_heartbeat_time=1.0)
    assert (second.status, second.end_time) == (closed, first.end_time) and first.end_time is not None
    assert await status(store, attempted) == before


@pytest.mark.parametrize("closed", ["failed", "timeout"])
async def test_a_late_span_does_not_strand_a_game_that_waits_for_its_next_attempt(store, closed):
    attempted = await taken(store)
    await end(store, attempted, closed)
    await store.add_span(span(attempted))
    assert await status(store, attempted) == "requeuing"
    assert (await store.dequeue_rollout()).rollout_id == attempted.rollout_id
    assert await spans_of(store, attempted) == [(attempted.attempt.attempt_id, 1)]  # stored all the same


async def test_a_silent_attempt_may_come_back_while_its_game_waits(store):
    attempted = await taken(store)
    await end(store, attempted, "unresponsive")
    assert await status(store, attempted) == "requeuing"
    await store.add_span(span(attempted))
    stored = await store.get_rollout_by_id(attempted.rollout_id)
    assert (stored.status, stored.attempt.status) == ("running", "running")
    assert await store.dequeue_rollout() is None
    await end(store, attempted, "succeeded")
    assert await status(store, attempted) == "succeeded"


async def test_a_silent_attempt_that_was_replaced_does_not_come_back(store):
    attempted = await taken(store)
    await end(store, attempted, "unresponsive")
    second = await store.dequeue_rollout()
    await store.add_span(span(attempted))
    with pytest.raises(Conflict, match="and does not become"):
        await end(store, attempted, "succeeded")
    first_stored, second_stored = await store.query_attempts(attempted.rollout_id)
    assert second_stored.status == "preparing" and await status(store, attempted) == "preparing"
    assert first_stored.status == "unresponsive"
    await end(store, second, "succeeded")
    assert await status(store, attempted) == "succeeded"


async def test_a_silent_attempt_of_a_failed_game_does_not_come_back(store):
    attempted = await taken(store, max_attempts=1)
    await end(store, attempted, "unresponsive")
    await store.add_span(span(attempted))
    with pytest.raises(Conflict, match="and does not become"):
        await end(store, attempted, "succeeded")
    assert await status(store, attempted) == "failed"


async def test_a_closed_game_gets_no_new_attempt(store):
    attempted = await taken(store)
    await end(store, attempted, "succeeded")
    with pytest.raises(Conflict, match="closed"):
        await store.start_attempt(attempted.rollout_id)
    assert len(await store.query_attempts(attempted.rollout_id)) == 1


# The watchdog


async def test_an_attempt_that_takes_too_long_times_out(store):
    attempted = await taken(store, timeout_seconds=0)
    await asyncio.sleep(0)
    stored = await store.get_rollout_by_id(attempted.rollout_id)
    assert (stored.status, stored.attempt.status) == ("requeuing", "timeout")
    second = await store.dequeue_rollout()
    assert second.rollout_id == attempted.rollout_id
    assert await status(store, attempted) == "failed"  # two attempts are allowed


async def test_an_attempt_without_spans_is_noticed(store):
    attempted = await taken(store, unresponsive_seconds=0)
    assert await status(store, attempted) == "requeuing"
    assert (await store.get_latest_attempt(attempted.rollout_id)).status == "unresponsive"


async def test_an_attempt_that_falls_silent_is_noticed(store, monkeypatch):
    attempted = await taken(store, unresponsive_seconds=100)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 90)
    await store.add_span(span(attempted))
    monkeypatch.setattr(time, "time", lambda: now + 180)
    assert await status(store, attempted) == "running"
    monkeypatch.setattr(time, "time", lambda: now + 200)
    assert await status(store, attempted) == "requeuing"


async def test_time_during_which_the_hub_was_away_is_not_silence(store):
    attempted = await taken(store, unresponsive_seconds=100)
    await store.update_attempt(
        attempted.rollout_id, attempted.attempt.attempt_id, status="running", last_heartbeat_time=LONG_AGO
    )
    assert await status(store, attempted) == "running"


async def test_without_limits_nothing_is_overdue(store):
    attempted = await taken(store)
    await store.update_attempt(attempted.rollout_id, "latest", last_heartbeat_time=LONG_AGO)
    assert await status(store, attempted) == "preparing"


async def test_ours_closes_what_is_overdue_when_asked_to(address):
    async with opened_store(address, scan_debounce_seconds=1000) as store:
        await store.enqueue_many_rollouts(
            [EnqueueRolloutRequest(input=n, config=config(timeout_seconds=0 if n else None)) for n in (0, 1)]
        )
        fine, overdue = await store.dequeue_many_rollouts(limit=2, worker_id="w")
        assert await status(store, overdue) == "preparing"
        await store.close_overdue()
        assert (await status(store, fine), await status(store, overdue)) == ("preparing", "requeuing")
        assert await store.collections.rollout_queue.dequeue(9) == [overdue.rollout_id]
        assert (await store.get_worker_by_id("w")).status == "unknown"


# Spans


async def test_spans_come_back_in_sequence(store):
    attempted = await taken(store)
    sent = [span(attempted, sequence_id) for sequence_id in (2, 1, 3)]
    assert [await store.add_span(one) for one in sent] == sent
    assert list(await store.query_spans(attempted.rollout_id)) == sorted(sent, key=lambda one: one.sequence_id)
    page = await store.query_spans(attempted.rollout_id, sort_order="desc", limit=1, offset=1)
    assert ([s.sequence_id for s in page], page.total) == ([2], 3)


async def test_many_spans_of_many_attempts(store):
    first, second = await taken(store), await taken(store)
    sent = [span(first, 1), span(second, 1), span(first, 2)]
    added = await store.add_many_spans(sent)
    assert sorted((s.rollout_id, s.sequence_id) for s in added) == sorted((s.rollout_id, s.sequence_id) for s in sent)
    assert [n for _, n in await spans_of(store, first)] == [1, 2]
    assert await status(store, second) == "running"
    assert list(await store.add_many_spans([])) == []


async def test_a_span_that_is_there_is_kept_as_it_is(store):
    attempted = await taken(store)
    await store.add_span(span(attempted, 1, span_id="same"))
    assert await store.add_span(span(attempted, 7, span_id="same")) is None
    added = await store.add_many_spans([span(attempted, 8, span_id="same"), span(attempted, 2, span_id="new")])
    assert [s.span_id for s in added] == ["new"]
    assert [n for _, n in await spans_of(store, attempted)] == [1, 2]


async def test_an_unknown_attempt_costs_the_whole_call(store):
    attempted = await taken(store)
    spans = [span(attempted), span(attempted, 2).model_copy(update={"attempt_id": "at-gone"})]
    with pytest.raises(ValueError, match="at-gone"):
        await store.add_many_spans(spans)
    assert len(await spans_of(store, attempted)) == 0


async def test_sequence_ids_go_on_from_what_was_issued_or_seen(store):
    attempted = await taken(store)
    ids = (attempted.rollout_id, attempted.attempt.attempt_id)
    assert [await store.get_next_span_sequence_id(*ids) for _ in range(2)] == [1, 2]
    await store.add_span(span(attempted, 9))
    assert await store.get_next_span_sequence_id(*ids) == 10
    await store.add_span(span(attempted, 3))
    other = await taken(store)
    other_ids = (other.rollout_id, other.attempt.attempt_id)
    assert list(await store.get_many_span_sequence_ids([ids, other_ids, ids])) == [11, 1, 12]
    assert list(await store.get_many_span_sequence_ids([])) == []


async def test_sequence_ids_are_not_issued_twice_when_many_ask(store):
    attempted = await taken(store)
    ids = (attempted.rollout_id, attempted.attempt.attempt_id)
    issued = await asyncio.gather(*(store.get_next_span_sequence_id(*ids) for _ in range(50)))
    assert sorted(issued) == list(range(1, 51))


async def test_otel_spans(store):
    from opentelemetry.sdk.trace import TracerProvider

    attempted = await taken(store)
    ids = (attempted.rollout_id, attempted.attempt.attempt_id)
    with TracerProvider().get_tracer("t").start_as_current_span("call", attributes={"k": "v"}) as readable:
        pass
    added = await store.add_otel_span(*ids, readable)
    assert (added.sequence_id, added.name, added.attributes["k"]) == (1, "call", "v")
    assert await store.add_otel_span(*ids, readable, sequence_id=5) is None  # the same span
    assert await store.get_next_span_sequence_id(*ids) == 6


async def test_spans_by_attempt_and_filters(store):
    attempted = await taken(store)
    await store.add_many_spans([span(attempted, 1, trace_id="t1"), span(attempted, 2, trace_id="t2", parent_id="p")])
    await end(store, attempted, "failed")
    second = await store.dequeue_rollout()
    await store.add_span(span(second, 3, trace_id="t1"))
    first_id, second_id = attempted.attempt.attempt_id, second.attempt.attempt_id
    assert await spans_of(store, attempted) == [(first_id, 1), (first_id, 2), (second_id, 3)]
    assert await spans_of(store, attempted, attempt_id=first_id) == [(first_id, 1), (first_id, 2)]
    assert await spans_of(store, attempted, attempt_id="latest") == [(second_id, 3)]
    assert await spans_of(store, attempted, trace_id="t1") == [(first_id, 1), (second_id, 3)]
    assert await spans_of(store, attempted, trace_id_contains="2") == [(first_id, 2)]
    assert await spans_of(store, attempted, parent_id="p") == [(first_id, 2)]
    assert await spans_of(store, attempted, name="turn", span_id_contains="3") == [(second_id, 3)]
    either = {"parent_id": "p", "span_id": f"{3:016x}", "filter_logic": "or"}
    assert await spans_of(store, attempted, **either) == [(first_id, 2), (second_id, 3)]
    assert await spans_of(store, attempted, attempt_id=first_id, **either) == [(first_id, 2)]


# Queries


async def test_query_rollouts(store):
    waiting, running, done = await store.enqueue_many_rollouts([EnqueueRolloutRequest(input=n) for n in range(3)])
    await store.update_rollout(done.rollout_id, status="succeeded")
    await store.update_rollout(running.rollout_id, status="requeuing")
    everything = [waiting.rollout_id, running.rollout_id, done.rollout_id]

    async def found(**query):
        return [rollout.rollout_id for rollout in await store.query_rollouts(**query)]

    assert await found() == everything
    assert await found(status_in=["queuing", "succeeded"]) == [waiting.rollout_id, done.rollout_id]
    assert await found(status_in=[]) == []
    assert await found(rollout_id_in=[done.rollout_id, "ro-gone"]) == [done.rollout_id]
    assert await found(rollout_id_contains=running.rollout_id[3:]) == [running.rollout_id]
    either = {"status_in": ["succeeded"], "rollout_id_in": [waiting.rollout_id], "filter_logic": "or"}
    assert await found(**either) == [waiting.rollout_id, done.rollout_id]
    assert await found(sort_by="start_time", sort_order="desc", limit=2) == everything[:0:-1]
    assert await found(sort_by="end_time", limit=1) == [done.rollout_id]
    page = await store.query_rollouts(limit=1, offset=1)
    assert ([rollout.input for rollout in page], page.total) == ([1], 3)


async def test_many_ids_at_once(store):
    rollouts = await store.enqueue_many_rollouts([EnqueueRolloutRequest(input=n) for n in range(300)])
    wanted = [rollout.rollout_id for rollout in rollouts] + [f"ro-{n}" for n in range(40_000)]
    assert (await store.query_rollouts(rollout_id_in=wanted)).total == 300


async def test_queried_rollouts_carry_their_latest_attempt(store):
    attempted = await taken(store)
    await end(store, attempted, "failed")
    second = await store.dequeue_rollout()
    await store.enqueue_rollout(input="waits")
    stored, waits = await store.query_rollouts()
    assert stored.attempt == second.attempt and not hasattr(waits, "attempt")
    assert stored.status == "preparing" and stored.config == config()


async def test_attempts_in_order_and_pages(store):
    attempted = await taken(store, max_attempts=3)
    for _ in range(2):
        await end(store, attempted, "failed")
        attempted = await store.dequeue_rollout()

    async def found(**query):
        return [attempt.sequence_id for attempt in await store.query_attempts(attempted.rollout_id, **query)]

    assert (await found(), await found(sort_order="desc"), await found(limit=1, offset=1)) == (
        [1, 2, 3],
        [3, 2, 1],
        [2],
    )


async def test_statistics_count(store):
    attempted = await taken(store, worker_id="w")
    await store.add_many_spans([span(attempted, n) for n in (1, 2)])
    await store.add_resources(llm())
    counts = await store.statistics()
    names = ("rollouts", "attempts", "spans", "resources", "workers")
    assert [counts[f"total_{name}"] for name in names] == [1, 1, 2, 1, 1]
    assert counts["name"] == "SqlLightningStore"
    assert counts["uptime"] >= 0


# Waiting


async def test_waiting_returns_at_once_what_is_closed(store):
    first, second = await store.enqueue_many_rollouts([EnqueueRolloutRequest(input=n) for n in (1, 2)])
    await store.update_rollout(second.rollout_id, status="cancelled")
    ids = [first.rollout_id, second.rollout_id, "ro-gone"]
    assert [rollout.input for rollout in await store.wait_for_rollouts(rollout_ids=ids, timeout=0)] == [2]
    assert await store.wait_for_rollouts(rollout_ids=[], timeout=None) == []
    assert [rollout.input for rollout in await store.wait_for_rollouts(rollout_ids=ids, timeout=0.01)] == [2]


async def test_waiting_ends_when_the_last_one_is_closed(store):
    rollouts = await store.enqueue_many_rollouts([EnqueueRolloutRequest(input=n) for n in (1, 2)])
    waiting = asyncio.create_task(
        store.wait_for_rollouts(rollout_ids=[rollout.rollout_id for rollout in rollouts], timeout=None)
    )
    await asyncio.sleep(0)
    for rollout in rollouts:
        assert not waiting.done()
        await store.update_rollout(rollout.rollout_id, status="succeeded")
    closed = await asyncio.wait_for(waiting, 20)
    assert sorted((rollout.input, rollout.status) for rollout in closed) == [(1, "succeeded"), (2, "succeeded")]


async def test_all_that_wait_share_one_look_at_the_database(our_store, monkeypatch):
    rollout = await our_store.enqueue_rollout(input=1)
    looks, last = 0, our_store.completions.last

    async def look():
        nonlocal looks
        looks += 1
        return await last()

    monkeypatch.setattr(our_store.completions, "last", look)
    waits = [
        asyncio.create_task(our_store.wait_for_rollouts(rollout_ids=[rollout.rollout_id], timeout=None))
        for _ in range(300)
    ]
    await asyncio.sleep(1)  # a rate is what is measured
    assert looks < 400  # one for each at the beginning, and then one in 50 ms
    await our_store.update_rollout(rollout.rollout_id, status="succeeded")
    assert [one.status for (one,) in await asyncio.gather(*waits)] == ["succeeded"] * 300


# Resources


async def test_resources_are_versioned_and_the_last_one_touched_is_the_latest(store):
    assert await store.get_latest_resources() is None
    first = await store.add_resources(llm("one"))
    second = await store.update_resources("rs-named", llm("two"))
    assert (first.version, second.version, second.resources_id) == (1, 1, "rs-named")
    assert await store.get_latest_resources() == second
    again = await store.update_resources(first.resources_id, llm("three"))
    assert (again.version, again.create_time, again.resources["policy"].model) == (2, first.create_time, "three")
    assert await store.get_latest_resources() == again == await store.get_resources_by_id(first.resources_id)
    assert [update.resources_id for update in await store.query_resources()] == [first.resources_id, "rs-named"]
    assert [update.resources_id for update in await store.query_resources(resources_id_contains="named")] == [
        "rs-named"
    ]
    assert (await store.query_resources(resources_id="rs-gone")).total == 0


async def test_the_latest_resources_do_not_depend_on_the_clock(store, monkeypatch):
    await store.add_resources(llm())
    monkeypatch.setattr(time, "time", lambda: LONG_AGO)
    later = await store.add_resources(llm())
    assert (await store.get_latest_resources()).resources_id == later.resources_id


# Workers


async def test_a_worker_s_life(store):
    await store.update_worker("w", {"playing": 0})
    worker = await store.get_worker_by_id("w")
    assert (worker.status, worker.heartbeat_stats) == ("unknown", {"playing": 0}) and worker.last_heartbeat_time
    assert await store.dequeue_rollout(worker_id="w") is None
    worker = await store.get_worker_by_id("w")
    assert worker.status == "idle" and worker.last_dequeue_time and worker.heartbeat_stats == {"playing": 0}

    attempted = await taken(store, worker_id="w")
    worker = await store.get_worker_by_id("w")
    assert (worker.status, worker.current_rollout_id) == ("busy", attempted.rollout_id)
    assert worker.current_attempt_id == attempted.attempt.attempt_id and worker.last_busy_time
    await end(store, attempted, "succeeded")
    worker = await store.get_worker_by_id("w")
    assert (worker.status, worker.current_rollout_id, worker.current_attempt_id) == ("idle", None, None)
    await store.update_worker("w")
    assert (await store.get_worker_by_id("w")).heartbeat_stats == {"playing": 0}


async def test_an_attempt_may_be_handed_to_another_worker(store):
    attempted = await taken(store, worker_id="w1")
    await store.update_attempt(attempted.rollout_id, attempted.attempt.attempt_id, worker_id="w2")
    worker = await store.get_worker_by_id("w2")
    assert (worker.status, worker.current_attempt_id) == ("busy", attempted.attempt.attempt_id)


async def test_query_workers(store):
    await taken(store, worker_id="host1-7")
    for worker_id in ("host1-8", "host2-1"):
        await store.dequeue_rollout(worker_id=worker_id)

    async def found(**query):
        return sorted(worker.worker_id for worker in await store.query_workers(**query))

    assert await found() == ["host1-7", "host1-8", "host2-1"]
    assert await found(status_in=["idle"]) == ["host1-8", "host2-1"]
    assert await found(status_in=["idle"], worker_id_contains="host1") == ["host1-8"]
    assert await found(status_in=["busy"], worker_id_contains="host2", filter_logic="or") == ["host1-7", "host2-1"]
    page = await store.query_workers(sort_by="worker_id", sort_order="desc", limit=1)
    assert ([worker.worker_id for worker in page], page.total) == (["host2-1"], 3)


# What only ours promises


async def test_a_call_that_breaks_off_has_done_nothing(our_store, engine):
    await our_store.enqueue_rollout(input=1)
    database = our_store.collections.database
    if engine == "postgres":
        await database.change(Statement(sa.text("ALTER TABLE attempts ADD CONSTRAINT no_room CHECK (sequence_id > 1)")))
    else:
        database._connection.execute(
            "CREATE TRIGGER no_room BEFORE INSERT ON attempts BEGIN SELECT RAISE(ABORT, 'no_room'); END"
        )
    with pytest.raises(Exception, match="no_room"):
        await our_store.dequeue_rollout(worker_id="w")
    if engine == "postgres":
        await database.change(Statement(sa.text("ALTER TABLE attempts DROP CONSTRAINT no_room")))
    else:
        database._connection.execute("DROP TRIGGER no_room")
    assert (await our_store.dequeue_rollout()).input == 1
    assert await our_store.get_worker_by_id("w") is None


async def test_all_is_there_after_reopening(address):
    async with opened_store(address) as store:
        resources = await store.add_resources(llm())
        attempted = await taken(store, worker_id="w")
        await store.add_span(span(attempted, 4))
        waits = await store.enqueue_rollout(input="waits")
        before = [list(await store.query_rollouts()), await store.get_worker_by_id("w")]

    async with opened_store(address) as store:
        assert [list(await store.query_rollouts()), await store.get_worker_by_id("w")] == before
        assert await store.get_latest_resources() == resources
        assert await spans_of(store, attempted) == [(attempted.attempt.attempt_id, 4)]
        assert await store.get_next_span_sequence_id(attempted.rollout_id, attempted.attempt.attempt_id) == 5
        assert (await store.dequeue_rollout()).rollout_id == waits.rollout_id
        await end(store, attempted, "succeeded")
        assert await status(store, attempted) == "succeeded"
