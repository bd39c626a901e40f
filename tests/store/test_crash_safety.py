"""A store killed with SIGKILL before any of its SQL statements: reopened, all that it had acknowledged is there, and
what it was doing is done whole or not at all."""

import asyncio
import json
import os
import random
import signal
from collections import Counter
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa
from agentlightning import EnqueueRolloutRequest, RolloutConfig, Span

from store.hub.database.lightning_store import SqlLightningStore
from store.hub.database.opening import opened_store
from store.hub.database.postgres import PostgresDatabase
from store.hub.database.schema import rollout_queue
from store.hub.database.sqlite import SqliteDatabase
from store.hub.database.statements import Statement
from store.schema import IDEMPOTENCY_KEY
from tests.support.hub.hub_backends import address_for
from tests.support.hub.hub_process import fork

pytest_plugins = ("tests.support.hub.hub_backends",)

CONFIG = RolloutConfig(max_attempts=3, retry_condition=["failed", "timeout", "unresponsive"])
STEPS = 40
OPEN = ("preparing", "running")
QUEUED = Statement(sa.select(rollout_queue.c.item).order_by(rollout_queue.c.position))


class CountedPostgres(PostgresDatabase):
    """Says when a statement, or the end of a transaction, is about to be sent."""

    def __init__(self, url, count):
        super().__init__(url, connections=2)
        self._count = count

    async def _run(self, *statement):
        self._count()
        return await super()._run(*statement)

    async def _run_each(self, *statement):
        self._count()
        await super()._run_each(*statement)

    @asynccontextmanager
    async def _session(self, write):
        async with super()._session(write) as connection:
            yield connection
            self._count()


def workload(address, log_path, seed, deadly_statement):
    """Make seeded calls and log each result; die by SIGKILL just before one of the SQL statements."""
    statements = 0

    def count(_statement=None):
        nonlocal statements
        statements += 1
        if statements == deadly_statement:
            os.kill(os.getpid(), signal.SIGKILL)

    async def run():
        on_sqlite = isinstance(address, Path)
        database = SqliteDatabase(address) if on_sqlite else CountedPostgres(address, count)
        store = SqlLightningStore(database)
        await database.connect()
        if on_sqlite:
            database._connection.set_trace_callback(count)
        await calls(store, random.Random(seed), acknowledge)
        acknowledge(call="finished", statements=statements)

    log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def acknowledge(**what):
        os.write(log, (json.dumps(what) + "\n").encode())

    asyncio.run(run())


async def calls(store, chance, acknowledge):
    playing, tasks = [], 0
    for _ in range(STEPS):
        call = chance.choice(["enqueue", "dequeue", "dequeue", "spans", "spans", "end", "silence"])
        if call == "enqueue":
            numbers = list(range(tasks, tasks + chance.randint(1, 3)))
            tasks = numbers[-1] + 1
            rollouts = await store.enqueue_many_rollouts(
                [EnqueueRolloutRequest(input=n, config=CONFIG, metadata={IDEMPOTENCY_KEY: f"t{n}"}) for n in numbers]
            )
            acknowledge(call=call, rollouts=[rollout.rollout_id for rollout in rollouts])
        elif call == "dequeue":
            for rollout in await store.dequeue_many_rollouts(limit=chance.randint(1, 2), worker_id="w"):
                playing.append((rollout.rollout_id, rollout.attempt.attempt_id))
                acknowledge(call=call, attempt=playing[-1])
        elif not playing:
            continue
        elif call == "spans":
            spans = [span(*chance.choice(playing), chance.randint(1, 5)) for _ in range(3)]
            await store.add_many_spans(spans)
            acknowledge(call=call, spans=[(s.rollout_id, s.attempt_id, s.span_id) for s in spans])
        else:
            attempt = playing.pop(chance.randrange(len(playing)))
            if call == "silence":
                await store.update_attempt(*attempt, status="unresponsive")
            else:
                status = chance.choice(["succeeded", "succeeded", "failed"])
                await store.update_attempt(*attempt, status=status)
                acknowledge(call=call, attempt=attempt, status=status)


def span(rollout_id, attempt_id, number):
    return Span.from_attributes(
        attributes={}, rollout_id=rollout_id, attempt_id=attempt_id, sequence_id=number, span_id=f"s{number}"
    )


async def check(store, acknowledged):
    """Everything acknowledged is there, and all that is there fits together."""
    rollouts = {rollout.rollout_id: rollout for rollout in await store.collections.rollouts.query()}
    attempts = list(await store.collections.attempts.query())
    spans = {(s.rollout_id, s.attempt_id, s.span_id) for s in await store.collections.spans.query()}
    queue = [rollout_id for (rollout_id,) in await store.collections.database.rows(QUEUED)]

    latest = {}
    for attempt in sorted(attempts, key=lambda attempt: attempt.sequence_id):
        latest[attempt.rollout_id] = attempt
    assert sorted(queue) == sorted(r for r, rollout in rollouts.items() if rollout.status in ("queuing", "requeuing"))
    for rollout_id, rollout in rollouts.items():
        sequence = sorted(attempt.sequence_id for attempt in attempts if attempt.rollout_id == rollout_id)
        assert sequence == list(range(1, len(sequence) + 1))
        state = latest[rollout_id].status if sequence else "queuing"
        assert (
            rollout.status == state
            or (rollout.status == "requeuing" and state in ("failed", "unresponsive"))
            or (rollout.status == "failed" and len(sequence) == 3)
        ), (rollout, latest.get(rollout_id))
    assert len({rollout.input for rollout in rollouts.values()}) == len(rollouts)

    taken = Counter()
    enqueued, statuses = [], {(a.rollout_id, a.attempt_id): a.status for a in attempts}
    for entry in acknowledged:
        match entry["call"]:
            case "enqueue":
                enqueued += entry["rollouts"]
            case "dequeue":
                assert tuple(entry["attempt"]) in statuses
                taken[tuple(entry["attempt"])] += 1
            case "spans":
                assert {tuple(s) for s in entry["spans"]} <= spans
            case "end":
                assert statuses[tuple(entry["attempt"])] == entry["status"]
    assert set(enqueued) <= set(rollouts)
    assert set(taken.values()) <= {1}
    never_taken = [rollout_id for rollout_id in enqueued if rollouts[rollout_id].status == "queuing"]
    assert [rollout_id for rollout_id in queue if rollout_id in set(never_taken)] == never_taken

    # And it goes on: whatever was being played ends by the watchdog's rules, and every task is played to its end.
    for attempt in latest.values():
        if attempt.status in OPEN:
            await store.update_attempt(attempt.rollout_id, attempt.attempt_id, status="timeout")
    while rollout := await store.dequeue_rollout():
        await store.update_attempt(rollout.rollout_id, rollout.attempt.attempt_id, status="succeeded")
    states = {rollout.status for rollout in await store.collections.rollouts.query()}
    assert states <= {"succeeded", "failed"}


async def run_and_check(address, log, deadly_statement):
    """How many statements the whole workload has; None if it died before that one."""
    process = fork(workload, address, log, 1, deadly_statement)
    await asyncio.to_thread(process.join)
    acknowledged = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    finished = bool(acknowledged) and acknowledged[-1]["call"] == "finished"
    assert process.exitcode == (0 if finished else -signal.SIGKILL)
    async with opened_store(address) as store:
        await check(store, acknowledged)
    return acknowledged[-1]["statements"] if finished else None


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
async def test_killed_before_any_statement(engine, request, tmp_path):
    async def once(name, deadly):
        folder = tmp_path / name
        folder.mkdir()
        async with address_for(engine, request, folder) as address:
            return await run_and_check(address, folder / "log", deadly)

    statements = await once("whole", None)
    assert statements > 150
    for deadly in random.Random(1).sample(range(1, statements + 1), 12):
        assert await once(str(deadly), deadly) is None
