"""The hub as a process: kill -9 in the middle of everything, clean ends, one line for what cannot work."""

import asyncio
import random
import re
import signal
import sqlite3
from collections import Counter
from functools import partial

import aiohttp
import pytest

from algo.machine.ports import free_port
from store.client import connect
from store.protocol import EnqueueRolloutRequest, RolloutConfig
from store.schema import IDEMPOTENCY_KEY
from store.token_spans import to_span
from tests.support.fakes import make_result, make_turn
from tests.support.hub.asking import enqueue_one, look_up, take
from tests.support.hub.hub_process import HubProcess, run_command
from tests.support.waiting import until

NOW = 1_700_000_000.0
TURNS = 6
GAMES = 60
RUNNERS = 4


@pytest.fixture
async def hub(tmp_path):
    hub = HubProcess(tmp_path)
    await hub.start()
    yield hub
    hub.kill()


@pytest.fixture
async def client(hub):
    client = connect(hub.url, retry_seconds=60)
    yield client
    await client.close()


def spans_of(rollout, numbers):
    ids = dict(rollout_id=rollout.rollout_id, attempt_id=rollout.attempt.attempt_id)
    return [
        to_span(make_turn(turn=n), **ids, sequence_id=n + 1, start_time=NOW, end_time=NOW + 1)
        if n < TURNS
        else to_span(make_result(), **ids, sequence_id=n + 1, start_time=NOW, end_time=NOW + 1)
        for n in numbers
    ]


async def insist(call):
    """Make a call again that the client gives up on: its answer broke off, or each of its tries met a killed hub."""
    while True:
        try:
            return await call()
        except (aiohttp.ClientPayloadError, aiohttp.ClientConnectionError):
            await asyncio.sleep(0)


class Traffic:
    """An algorithm and some runners at work, who note what the hub has acknowledged."""

    def __init__(self, client):
        self.client = client
        self.enqueued = {}  # input -> rollout id
        self.stored = Counter()  # attempt -> spans
        self.finished = {}  # rollout id -> attempt id
        self.acknowledged = asyncio.Semaphore(0)

    async def enqueue(self):
        config = RolloutConfig(unresponsive_seconds=1, max_attempts=50, retry_condition=["unresponsive", "timeout"])
        for first in range(0, GAMES, 3):
            tasks = [
                EnqueueRolloutRequest(input=n, config=config, metadata={IDEMPOTENCY_KEY: f"game-{n}"})
                for n in range(first, first + 3)
            ]
            rollouts = await insist(partial(self.client.enqueue_many_rollouts, tasks))
            self.enqueued |= {rollout.input: rollout.rollout_id for rollout in rollouts}
            self.acknowledged.release()

    async def run(self, worker_id):
        while len(self.finished) < GAMES:
            try:
                rollout = await take(self.client, worker_id)
            except (aiohttp.ClientError, TimeoutError):
                rollout = None
            if rollout is None:
                await asyncio.sleep(0.05)  # as a runner looks again
                continue
            self.acknowledged.release()
            key = (rollout.rollout_id, rollout.attempt.attempt_id)
            for numbers in (range(0, 3), range(3, TURNS + 1)):
                if await self.client.upload_spans(spans_of(rollout, numbers)):
                    raise AssertionError(f"the hub has lost {key}")
                self.stored[key] += len(numbers)
                self.acknowledged.release()
            try:
                attempt = await insist(partial(self.client.update_attempt, *key, status="succeeded"))
            except aiohttp.ClientResponseError as error:
                assert error.status == 409  # given to another runner while the hub was away, who has ended it
            else:
                if attempt.status == "succeeded":
                    assert rollout.rollout_id not in self.finished
                    self.finished[rollout.rollout_id] = key[1]
            self.acknowledged.release()


async def test_kill_9_in_the_middle_of_everything_loses_and_doubles_nothing(tmp_path):
    await play_with_kills(tmp_path, random.Random(7), kills=6)


async def kill_the_hub(hub):
    hub.kill()
    await hub.start()


async def play_with_kills(folder, chance, kills, *options, kill=kill_the_hub):
    hub = HubProcess(folder, *options)
    await hub.start()
    client = connect(hub.url, retry_seconds=60)
    traffic = Traffic(client)
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(traffic.enqueue())
            for n in range(RUNNERS):
                group.create_task(traffic.run(f"runner-{n}"))
            for _ in range(kills):
                for _ in range(chance.randint(1, 200 // kills)):
                    await traffic.acknowledged.acquire()
                for _ in range(chance.randint(0, 30)):  # a few more turns of the loop, with requests on their way
                    await asyncio.sleep(0)
                await kill(hub)
        rollouts = {rollout.rollout_id: rollout for rollout in await client.query_rollouts()}
        assert sorted(rollout.input for rollout in rollouts.values()) == list(range(GAMES))
        assert {rollout.input: rollout_id for rollout_id, rollout in rollouts.items()} == traffic.enqueued
        assert {rollout.status for rollout in rollouts.values()} == {"succeeded"}
        assert {r: rollout.attempt.attempt_id for r, rollout in rollouts.items()} == traffic.finished
        for (rollout_id, attempt_id), count in traffic.stored.items():
            spans = await client.query_spans(rollout_id, attempt_id)
            assert [span.sequence_id for span in spans][:count] == list(range(1, count + 1))
        for rollout_id, attempt_id in traffic.finished.items():
            assert len(await client.query_spans(rollout_id, attempt_id)) == TURNS + 1
        assert await take(client) is None
    finally:
        await client.close()
        hub.kill()


async def test_overdue_attempts_are_noticed_without_anybody_calling(hub, client):
    config = RolloutConfig(timeout_seconds=0.1, max_attempts=2, retry_condition=["timeout"])
    await enqueue_one(client, 1, config=config)
    await take(client)

    async def noticed():
        with sqlite3.connect(f"file:{hub.database}?mode=ro", uri=True) as looking_on:
            return looking_on.execute("SELECT status FROM rollouts").fetchall() == [("requeuing",)]

    await until(noticed)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_it_ends_in_good_order_although_a_request_hangs(hub, client, number):
    rollout = await enqueue_one(client, 1)

    async def wait_for_ever():
        async with aiohttp.ClientSession() as session:
            waits = session.post(f"{hub.url}/v1/agl/waits/rollouts", json={"rollout_ids": [rollout.rollout_id]})
            async with waits as response:
                return response.status

    hanging = asyncio.create_task(wait_for_ever())
    await client.get_latest_resources()  # sent later, answered: the other one has arrived
    assert await asyncio.to_thread(hub.stop, number) == 0
    assert await hanging == 503
    files = sorted(file.name for file in hub.database.parent.iterdir())
    assert files == ["hub.log", "hub.sqlite3", "hub.sqlite3.lock"]
    log = hub.log.read_text()
    assert "Traceback" not in log and "the hub has stopped" in log


async def test_a_second_hub_on_the_same_file_or_port_says_so_in_one_line(hub, tmp_path):
    status, said = run_command("--port", str(hub.port), "--db", str(tmp_path / "other.sqlite3"))
    assert status == 1 and re.search(rf"^python -m store: .*port {hub.port}: the port is in use.*--port\n$", said)
    assert not (tmp_path / "other.sqlite3").exists()
    status, said = run_command("--port", "0", "--db", str(hub.database))
    assert status == 1 and re.search(r"^python -m store: another hub has locked .*hub.sqlite3.*\n$", said)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--db", "/proc/nowhere/hub.sqlite3"], "cannot write /proc/nowhere/hub.sqlite3.lock: No such file"),
        (["--db", "{folder}/diary"], "cannot use the database .*diary: file is not a database"),
        (["--host", "203.0.113.1", "--no-auth"], "cannot listen on 203.0.113.1 port"),
        (["--port", "99999"], "error: argument --port: '99999' is not a number from 0 to 65535"),
        (["--token-file", "/nonexistent"], "cannot read the token file /nonexistent: No such file"),
        (["--certificate", "/nonexistent"], "error: --certificate and --key need each other"),
        (["--n-workers", "2"], "error: --workers above 1 needs PostgreSQL, such as --db postgresql://"),
    ],
)
def test_what_cannot_work_is_one_line(tmp_path, options, message):
    defaults = ["--port", str(free_port()), "--db", str(tmp_path / "hub.sqlite3")]
    (tmp_path / "diary").write_text("Dear diary, " * 100)
    status, said = run_command(*defaults, *(option.format(folder=tmp_path) for option in options))
    assert status in (1, 2) and "Traceback" not in said
    assert re.search(rf"^python -m store: {message}", said.splitlines()[-1]), said


async def test_the_memory_backend_forgets_and_a_killed_hub_s_port_is_free(tmp_path):
    hub = await HubProcess(tmp_path, "--backend", "memory").start()
    client = connect(hub.url, retry_seconds=60)
    rollout = await enqueue_one(client, 1)
    assert (await look_up(client, rollout.rollout_id)).input == 1
    hub.kill()
    await hub.start()
    assert (await client.query_rollouts()).total == 0 and not hub.database.exists()
    await client.close()
    hub.kill()
