"""Hubs over PostgreSQL: several at once, killed, their database killed, and what is said when it cannot be used."""

import asyncio
import random
from contextlib import suppress

import aiohttp
import asyncpg
import psutil
import pytest
import sqlalchemy as sa
from agentlightning import EnqueueRolloutRequest, RolloutConfig

from runners.worker import Worker
from store.client import connect
from store.errors import Conflict
from store.hub.database.database import DatabaseUnavailable
from store.hub.database.opening import opened_store
from store.hub.database.schema import VERSION
from store.schema import IDEMPOTENCY_KEY
from tests.runners.test_network_faults import Play, all_closed, check_played_once, enqueue, working
from tests.support.hub.asking import enqueue_one, look_up
from tests.support.hub.hub_process import HubProcess, run_command
from tests.support.hub.postgres_server import PASSWORD, discard, new_server
from tests.support.waiting import until

pytest_plugins = ("tests.support.hub.hub_backends",)

ESCAPED = PASSWORD.replace("%", "%25")


@pytest.fixture(scope="module")
def mortal_server():
    """One that may be killed without harm to other tests."""
    server = new_server("fsync=off", "shared_buffers=32MB").start()
    yield server
    discard(server)


def tasks(number, **config):
    return [EnqueueRolloutRequest(input=n, config=RolloutConfig(**config)) for n in range(number)]


def workers_of(hub):
    return psutil.Process(hub.process.pid).children()


def is_alive(process):
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


# Many at once


async def test_hubs_that_hand_out_at_once_hand_out_every_game_once_and_pass_over_what_another_takes(two_hubs):
    one, another = two_hubs
    await one.enqueue_many_rollouts(tasks(120))
    taken = []

    async def take(hub, runner):
        while batch := await hub.dequeue_many_rollouts(limit=3, worker_id=runner):
            taken.extend(rollout.input for rollout in batch)

    async with one.collections.atomic():
        assert (await one.dequeue_rollout()).input == 0
        taken.append((await asyncio.create_task(another.dequeue_rollout())).input)
        assert taken == [1]
    await asyncio.gather(*(take(two_hubs[n % 2], f"w{n}") for n in range(8)))
    assert sorted(taken) == list(range(1, 120))


async def test_a_key_that_two_hubs_get_at_once_is_one_task(two_hubs):
    requests = [EnqueueRolloutRequest(input=n, metadata={IDEMPOTENCY_KEY: f"k{n}"}) for n in range(20)]
    many = await asyncio.gather(*(two_hubs[n % 2].enqueue_many_rollouts(requests) for n in range(6)))
    assert len({tuple(rollout.rollout_id for rollout in rollouts) for rollouts in many}) == 1
    assert (await two_hubs[0].query_rollouts()).total == 20


async def test_of_reports_at_once_one_closes_the_game_and_the_counts_are_right(two_hubs):
    await two_hubs[0].enqueue_many_rollouts(tasks(10))
    for taken in await two_hubs[1].dequeue_many_rollouts(limit=10):
        key = (taken.rollout_id, taken.attempt.attempt_id)
        reports = [
            two_hubs[n % 2].update_attempt(*key, status=status)
            for n, status in enumerate(["succeeded", "failed", "succeeded", "failed"])
        ]
        answers = await asyncio.gather(*reports, return_exceptions=True)
        refused = [answer for answer in answers if isinstance(answer, Exception)]
        assert len(refused) == 2 and all(isinstance(answer, Conflict) for answer in refused)
        rollout = await two_hubs[0].get_rollout_by_id(taken.rollout_id)
        assert rollout.status == rollout.attempt.status
    counted = [(await two_hubs[0].query_rollouts(status_in=[s], limit=1)).total for s in ("succeeded", "failed")]
    assert sum(counted) == 10
    await asyncio.gather(*(hub.collections.compact_counts(more_than=0) for hub in two_hubs))
    assert (await two_hubs[1].statistics())["total_rollouts"] == 10


async def test_numbers_for_spans_are_given_once(two_hubs):
    await two_hubs[0].enqueue_many_rollouts(tasks(2))
    pairs = [(r.rollout_id, r.attempt.attempt_id) for r in await two_hubs[0].dequeue_many_rollouts(limit=2)]
    asked = [two_hubs[n % 2].get_many_span_sequence_ids(pairs if n % 3 else pairs[::-1]) for n in range(12)]
    firsts = [answer[0 if n % 3 else 1] for n, answer in enumerate(await asyncio.gather(*asked))]
    assert sorted(firsts) == list(range(1, 13))


async def test_a_worker_that_two_hubs_meet_at_once_is_one_and_keeps_its_fields(two_hubs, postgres_url):
    one, another = two_hubs
    connection = await asyncpg.connect(postgres_url)
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    async with one.collections.atomic():
        await one.update_worker("w", {"cpu": 1})
        second = asyncio.create_task(another.update_worker("w"))
        await until(lambda: connection.fetchval(waiting))
    await second
    await connection.close()
    assert (await one.get_worker_by_id("w")).heartbeat_stats == {"cpu": 1}
    assert (await one.statistics())["total_workers"] == 1


async def test_one_watchdog_at_a_time_and_not_over_a_game_that_is_being_changed(two_hubs):
    one, another = two_hubs
    await one.enqueue_many_rollouts(tasks(2, timeout_seconds=0))
    busy, idle = await one.dequeue_many_rollouts(limit=2)
    async with one.collections.atomic():
        await one.collections.lock_rollouts([busy.rollout_id])
        await asyncio.create_task(another.close_overdue())
        assert (await one.get_rollout_by_id(busy.rollout_id)).status == "preparing"
        assert (await one.get_rollout_by_id(idle.rollout_id)).status == "failed"
    async with one.collections.atomic():
        assert await one.collections.database.try_lock("watchdog")
        await asyncio.create_task(another.close_overdue())
    assert (await one.get_rollout_by_id(busy.rollout_id)).status == "preparing"
    await another.close_overdue()
    assert (await one.get_rollout_by_id(busy.rollout_id)).status == "failed"


async def test_a_deadlock_ends_one_of_two_transactions_which_may_be_retried(two_hubs):
    one, another = two_hubs
    first, second = [rollout.rollout_id for rollout in await one.enqueue_many_rollouts(tasks(2))]
    both = asyncio.Barrier(2)

    async def change(hub, *ids):
        async with hub.collections.atomic():
            await hub.collections.lock_rollouts([ids[0]])
            await both.wait()
            await hub.collections.lock_rollouts([ids[1]])

    crossed = await asyncio.gather(change(one, first, second), change(another, second, first), return_exceptions=True)
    (failed,) = [error for error in crossed if error is not None]
    assert isinstance(failed, DatabaseUnavailable) and failed.undone


# Kills


def break_at(store, words):
    """Have the server end the connection of the next statement with these words. Returns an event: it has."""
    database, broken = store.collections.database, asyncio.Event()
    run = database._run

    async def run_or_break(connection, sql, values):
        if words in sql and not broken.is_set():
            broken.set()
            with suppress(asyncpg.PostgresError):
                await connection.execute("SELECT pg_terminate_backend(pg_backend_pid())")
        return await run(connection, sql, values)

    database._run = run_or_break
    return broken


async def all_batches(store, _):
    page = {"status_in": None, "rollout_id_contains": None, "filter_logic": "and", "sort_by": None}
    _, batches = await store.all_rollouts(**page, sort_order="asc", limit=-1, offset=0)
    return [batch async for batch in batches]


CALLS = [
    (all_batches, " attempts"),
    (lambda store, rollout_id: store.get_rollout_by_id(rollout_id), " attempts"),
    (lambda store, _: store.query_rollouts(), " attempts"),
    (lambda store, _: store.get_latest_resources(), " marks"),
    (lambda store, rollout_id: store.wait_for_rollouts(rollout_ids=[rollout_id], timeout=0), " rollouts"),
    (lambda store, _: store.finished_since(None), " marks"),
    (lambda store, rollout_id: store.update_rollout(rollout_id, mode="val"), " rollouts"),
]


@pytest.mark.parametrize(("call", "words"), CALLS)
async def test_a_call_whose_connection_breaks_is_retried(two_hubs, call, words):
    store = two_hubs[0]
    rollout = await store.enqueue_rollout(input=1)
    whole = await call(store, rollout.rollout_id)
    broken = break_at(store, words)
    assert await call(store, rollout.rollout_id) == whole
    assert broken.is_set()


@pytest.mark.parametrize("words", ["EXISTS", "completions.number >", "UPDATE marks"])
async def test_calls_that_wait_outlive_a_connection_that_breaks(two_hubs, words):
    one, another = two_hubs
    rollout = await one.enqueue_rollout(input=1)
    waiting = asyncio.create_task(one.wait_for_rollouts(rollout_ids=[rollout.rollout_id], timeout=60))
    await until(lambda: one.completions._poller is not None)
    broken = break_at(one, words)
    if words == "EXISTS":  # which the poller runs all the time, the others once a rollout has closed
        await asyncio.wait_for(broken.wait(), 10)
    await another.update_rollout(rollout.rollout_id, status="cancelled")
    assert [closed.rollout_id for closed in await waiting] == [rollout.rollout_id]
    assert broken.is_set()


async def kill_a_worker(hub):
    random.choice(workers_of(hub)).kill()


async def play_with_kills(folder, database, kill, *options):
    """Games of three runners, while something is killed; what the hub has said."""
    hub = await HubProcess(folder, "--db", database, *options).start()
    clients = [connect(hub.url, retry_seconds=60) for _ in range(3)]
    runners = [Worker(client, Play(), f"w{n}", heartbeat_seconds=0.2) for n, client in enumerate(clients)]
    try:
        ids = await enqueue(clients[0], 60, unresponsive_seconds=2.0)
        async with working(*runners):
            for kills in range(1, 5):
                await until(lambda kills=kills: sum(runner.stats.finished for runner in runners) >= 10 * kills)
                await kill(hub)
            await all_closed(clients[0], ids)
        await check_played_once(clients[0], ids)
    finally:
        for client in clients:
            await client.close()
        hub.kill()
    said = hub.log.read_text()
    assert PASSWORD not in said and ESCAPED not in said
    return said


async def test_a_killed_worker_loses_and_doubles_nothing_and_is_restarted(tmp_path, postgres_url):
    said = await play_with_kills(tmp_path, postgres_url, kill_a_worker, "--workers", "2")
    assert "has died (SIGKILL); restarting it" in said


async def test_the_database_is_killed(tmp_path, mortal_server):
    async def kill_the_database(hub):
        mortal_server.kill()
        mortal_server.start()

    url = await mortal_server.make_database("killed")
    assert "Traceback" not in await play_with_kills(tmp_path, url, kill_the_database, "--workers", "2")


async def test_while_the_database_is_away_the_hub_says_so_and_clients_wait(tmp_path, mortal_server):
    url = await mortal_server.make_database("away")
    hub = await HubProcess(tmp_path, "--db", url).start()
    client = connect(hub.url, retry_seconds=200)
    rollout = await enqueue_one(client, 1)
    mortal_server.stop("immediate")
    async with aiohttp.ClientSession() as session:

        async def is_away():
            async with session.get(f"{hub.url}/v1/agl/health") as answer:
                return answer.status == 503 and answer.headers["Retry-After"] == "1"

        await until(is_away)
        async with session.get(f"{hub.url}/v1/agl/rollouts/{rollout.rollout_id}") as answer:
            detail = (await answer.json())["detail"]
            assert answer.status == 503 and answer.headers["Retry-After"] == "1"
            assert f"127.0.0.1:{mortal_server.port}/away" in detail and PASSWORD not in detail
    waiting = asyncio.create_task(look_up(client, rollout.rollout_id))
    await asyncio.to_thread(mortal_server.start)
    assert (await waiting).input == 1
    await client.close()
    assert hub.stop() == 0
    assert PASSWORD not in hub.log.read_text()


@pytest.mark.parametrize("end", [HubProcess.stop, HubProcess.kill])
async def test_several_processes_behind_one_port_end_together(tmp_path, postgres_url, end):
    hub = await HubProcess(tmp_path, "--db", postgres_url, "--workers", "3").start()
    workers = workers_of(hub)
    assert len(workers) == 3 and not end(hub)
    await until(lambda: not any(map(is_alive, workers)))


# What is said when it cannot be used


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda url: url.replace(ESCAPED, "wrong"), "rejects user postgres: set PGPASSWORD"),
        (lambda url: url.replace("/games", "/nogames"), "the database does not exist: create it with createdb"),
        (lambda _: "postgresql://u:wrong@127.0.0.1:1/games", "u@127.0.0.1:1/games: no PostgreSQL responds there"),
        (lambda _: "postgresql://u:wr@wrong@h/d", "escape special characters"),
    ],
)
def test_a_database_that_cannot_be_used_is_one_line_without_the_password(postgres_url, change, reason):
    status, said = run_command("--port", "0", "--db", change(postgres_url))
    lines = [line for line in said.splitlines() if line.startswith("python -m store:")]
    assert status in (1, 2) and len(lines) == 1 and "Traceback" not in said, said
    assert reason in lines[0] and "wrong" not in said and PASSWORD not in said and ESCAPED not in said


async def test_tables_of_another_version_are_refused(postgres_url):
    async with opened_store(sa.make_url(postgres_url)) as store:
        await store.collections.marks.set("version", "99")
        status, said = run_command("--port", "0", "--db", postgres_url)
        assert status == 1 and "its tables are version 99" in said and "export" in said
        await store.collections.marks.set("version", str(VERSION))
