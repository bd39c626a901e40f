"""Runners behind a network that fails, before both hubs: every game ends once, no span is lost or doubled."""

import asyncio
import contextlib
import logging
import time
import uuid
from collections import Counter
from types import SimpleNamespace

import aiohttp
import pytest

from runners.worker import Worker
from store.client import StoreClient
from store.protocol import EnqueueRolloutRequest, RolloutConfig
from store.schema import IDEMPOTENCY_KEY
from store.werewolf import ResultSpan, TurnSpan
from tests.support.fakes import make_result, make_turn
from tests.support.fault_proxy import Fault, FaultProxy
from tests.support.hub.hub_process import HubProcess, StockHub
from tests.support.waiting import until

TURNS = 4
RETRY_SECONDS = 30.0
ANSWER_SECONDS = 1.0
"""How long a client waits for an answer; 30 s in earnest. A hub on a busy machine must answer within it."""
SHORT_ANSWER_SECONDS = 0.5
"""The same, where it does no harm that the hub may take longer."""
STUCK_SECONDS = 120
"""Only a test that hangs takes so long, also on a machine that is busy."""
TOKEN = "jIwG7-long-and-secret"


class Play:
    """A ``Play`` of some turns, which waits between them at a gate."""

    def __init__(self):
        self.gate = asyncio.Event()
        self.gate.set()
        self.playing = 0
        self.waiting = asyncio.Event()

    async def __call__(self, rollout, on_turn):
        self.playing += 1
        try:
            for turn in range(TURNS):
                if turn == TURNS // 2:
                    self.waiting.set()
                    await self.gate.wait()
                await asyncio.sleep(0.02)  # turns take time
                now = time.time()
                on_turn(make_turn(game_id=rollout.input["game"], turn=turn), now, now)
            return make_result()
        finally:
            self.playing -= 1


STOCK = pytest.param(StockHub, id="stock", marks=pytest.mark.soak)
BOTH_HUBS = pytest.mark.parametrize("hub", [pytest.param(HubProcess, id="ours"), STOCK], indirect=True)
"""For what depends on the hub; what the client does by itself is shown before one of them."""


@pytest.fixture
async def hub(request, tmp_path):
    hub = await getattr(request, "param", HubProcess)(tmp_path).start()
    yield hub
    hub.kill()


@pytest.fixture
async def proxy(hub):
    proxy = FaultProxy(hub.url)
    await proxy.start()
    yield proxy
    await proxy.stop()


@pytest.fixture
async def afar(proxy):
    """Sees the hub through the proxy, as a runner does."""
    client = StoreClient(proxy.url, RETRY_SECONDS, request_timeout_seconds=ANSWER_SECONDS)
    yield client
    await client.close()


async def enqueue(client, count, unresponsive_seconds=60.0):
    """Enqueue games as the algorithm does."""
    config = RolloutConfig(
        timeout_seconds=120.0,
        unresponsive_seconds=unresponsive_seconds,
        max_attempts=20,
        retry_condition=["failed", "timeout", "unresponsive"],
    )
    run = uuid.uuid4().hex
    requests = [
        EnqueueRolloutRequest(
            input={"game": f"game-{n}"}, mode="train", config=config, metadata={IDEMPOTENCY_KEY: f"{run}/{n}"}
        )
        for n in range(count)
    ]
    return [rollout.rollout_id for rollout in await client.enqueue_many_rollouts(requests)]


async def all_closed(client, ids):
    """Return when every game has ended. Asking also wakes the stock hub's watchdog."""

    async def closed():
        rollouts = await client.query_rollouts(rollout_id_in=ids)
        return all(rollout.status in ("succeeded", "failed", "cancelled") for rollout in rollouts)

    await until(closed, seconds=200, every=0.2)


@contextlib.asynccontextmanager
async def working(*workers, seconds=STUCK_SECONDS):
    """Workers that play until the end of the block, and then finish what they play. None may fail or get stuck."""
    running = [asyncio.create_task(worker.run()) for worker in workers]
    try:
        async with asyncio.timeout(seconds):
            yield
            for worker in workers:
                worker.drain()
            await asyncio.gather(*running)
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def check_played_once(client, ids):
    """Each game has succeeded in one attempt, whose spans are all there, once; returns its attempts, by status."""
    rollouts = list(await client.query_rollouts())
    assert sorted(rollout.rollout_id for rollout in rollouts) == sorted(ids)
    assert {rollout.status for rollout in rollouts} == {"succeeded"}
    statuses = Counter()
    for rollout in rollouts:
        attempts = list(await client.query_attempts(rollout.rollout_id))
        statuses.update(attempt.status for attempt in attempts)
        assert [attempt.status for attempt in attempts].count("succeeded") == 1
        assert rollout.attempt.status == "succeeded" and rollout.attempt.attempt_id == attempts[-1].attempt_id
        spans = list(await client.query_spans(rollout.rollout_id, rollout.attempt.attempt_id))
        assert [span.sequence_id for span in spans] == list(range(1, TURNS + 2))
        assert [TurnSpan.is_in(span) for span in spans] == [True] * TURNS + [False] and ResultSpan.is_in(spans[-1])
        assert [TurnSpan.decode(span).turn for span in spans[:-1]] == list(range(TURNS))
        assert {TurnSpan.decode(span).game_id for span in spans[:-1]} == {rollout.input["game"]}
        of_all_attempts = list(await client.query_spans(rollout.rollout_id))
        assert len({span.span_id for span in of_all_attempts}) == len(of_all_attempts)
    return statuses


@pytest.mark.parametrize("swallowed", [False, True])
async def test_the_hub_is_away_in_mid_game(client, proxy, afar, swallowed, caplog):
    """For seconds, of a patience of half a minute; the games go on meanwhile, and end before the hub is back."""
    caplog.set_level("INFO", "store.client")
    ids = await enqueue(client, 5)
    play = Play()
    play.gate.clear()
    async with working(Worker(afar, play, "w", max_concurrent=4, heartbeat_seconds=0.2)):
        await play.waiting.wait()
        if swallowed:
            proxy.unplug()
        else:
            await proxy.stop()
        play.gate.set()
        await until(lambda: not play.playing)
        await until(lambda: "is interrupted" in caplog.text)  # a request of the worker ended without an answer
        assert {rollout.status for rollout in await client.query_rollouts(rollout_id_in=ids)} & {"preparing", "running"}
        if swallowed:
            proxy.plug_in()
        else:
            await proxy.start()
        await all_closed(client, ids)
    assert await check_played_once(client, ids) == {"succeeded": 5}


@pytest.mark.parametrize("kind", ["spans", "update_attempt", "other"])
async def test_no_attempt_is_lost_with_an_answer(client, proxy, afar, kind):
    ids = await enqueue(client, 12)
    proxy.plan(kind, Fault)
    async with working(Worker(afar, Play(), "w", max_concurrent=2, heartbeat_seconds=0.2)):
        await all_closed(client, ids)
    assert await check_played_once(client, ids) == {"succeeded": 12}
    assert proxy.hit == {(kind, fault): 1 for fault in Fault}


@BOTH_HUBS
async def test_games_of_a_lost_dequeue_reply_are_played_after_their_timeout(client, proxy, afar):
    applied = (Fault.ANSWER_LOST, Fault.NO_ANSWER, Fault.CUT_IN_HEADERS, Fault.CUT_IN_BODY)
    ids = await enqueue(client, 10, unresponsive_seconds=2.0)
    proxy.plan("dequeue", Fault)
    async with working(Worker(afar, Play(), "w", max_concurrent=1, heartbeat_seconds=0.2)):
        await all_closed(client, ids)
    statuses = await check_played_once(client, ids)
    assert statuses["succeeded"] == 10 and statuses["unresponsive"] >= len(applied)
    assert proxy.hit == {("dequeue", fault): 1 for fault in Fault}


async def test_an_outage_does_not_count_as_idleness(client, proxy, afar, monkeypatch):
    answers, dequeue = Counter(), afar.dequeue_many_rollouts

    async def counted(**options):
        try:
            found = await dequeue(**options)
        except (TimeoutError, aiohttp.ClientError):
            answers["lost"] += 1  # after longer than the worker may be idle
            raise
        answers["given"] += 1
        return found

    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + 2000 * answers["lost"], time=time.time)
    monkeypatch.setattr("runners.worker.time", clock)
    monkeypatch.setattr("runners.worker._MAX_POLL_SECONDS", 0.1)
    monkeypatch.setattr(afar, "dequeue_many_rollouts", counted)
    async with working(Worker(afar, Play(), "w", idle_exit_seconds=1000, heartbeat_seconds=0.2)):
        await until(lambda: answers["given"])
        await proxy.stop()
        await until(lambda: answers["lost"] >= 2)
        given = answers["given"]
        await proxy.start()
        await until(lambda: answers["given"] > given)
        ids = await enqueue(client, 1)
        await all_closed(client, ids)
    assert await check_played_once(client, ids) == {"succeeded": 1}


async def test_games_are_enqueued_once(client, proxy, afar):
    """The stock hub knows no idempotency key: there a repeated request enqueues the games once more."""
    ids = []
    for fault in Fault:
        proxy.plan("enqueue", [fault])
        ids += await enqueue(afar, 3)
    assert proxy.hit == {("enqueue", fault): 1 for fault in Fault}
    async with working(Worker(afar, Play(), "w", heartbeat_seconds=0.2)):
        await all_closed(client, ids)
    assert await check_played_once(client, ids) == {"succeeded": len(ids)}


@BOTH_HUBS
async def test_a_runner_that_was_cut_off_too_long_leaves_its_games_to_another(client, proxy, afar):
    """What it has left to say of them when it is back must not disturb the other's."""
    ids = await enqueue(client, 3, unresponsive_seconds=1.0)
    stuck, other = Play(), Play()
    stuck.gate.clear()
    other.gate.clear()
    cut_off, another = (
        Worker(afar, stuck, "cut off", max_rollouts=3, heartbeat_seconds=0.2),
        Worker(client, other, "other"),
    )
    async with working(cut_off):
        await until(lambda: stuck.playing >= 3)
        await proxy.stop()
        async with working(another):

            async def others_play():
                await client.query_rollouts()  # which wakes the watchdog, which gives them the games
                return other.playing >= 3

            await until(others_play)
            stuck.gate.set()  # the one that is cut off plays them to their end
            await until(lambda: not stuck.playing)
            await proxy.start()
            # It is back, and has said what it had to say.
            await until(lambda: cut_off.stats.failed + cut_off.stats.finished >= 3)
            other.gate.set()
            await all_closed(client, ids)
    statuses = await check_played_once(client, ids)
    assert statuses["succeeded"] == 3 and statuses.total() >= 6
    assert {rollout.attempt.worker_id for rollout in await client.query_rollouts()} == {"other"}


@pytest.mark.parametrize("hub", [HubProcess, StockHub], ids=["ours", "stock"], indirect=True)
async def test_a_game_without_spans_is_kept_alive_by_its_runner(client):
    play, silence = Play(), 2.0
    play.gate.clear()
    (slow,) = await enqueue(client, 1, unresponsive_seconds=silence)

    async def outlived():
        (attempt,) = await client.query_attempts(slow)
        return (attempt.last_heartbeat_time or 0) - attempt.start_time > 1.5 * silence

    async with working(Worker(client, play, "w")):
        await play.waiting.wait()
        await until(outlived)
        play.gate.set()
        await all_closed(client, [slow])
    assert await check_played_once(client, [slow]) == {"succeeded": 1}


async def fail(rollout, on_turn):
    raise KeyError("a bug")


async def play_for_ever(rollout, on_turn):
    on_turn(make_turn(turn=0), 1.7e9, 1.7e9)
    await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("refused", "play", "said"),
    [
        ({"/dequeue": 503}, fail, "dequeue failed"),
        ({"/rollouts/search": 403}, Play(), "the hub rejects its status"),
        ({"/rollouts/search": 403}, fail, "so the hub retries it after its timeout"),
        ({"/v1/traces": 500, "/attempts/search": 403}, play_for_ever, "spans could not be sent"),
        ({"/workers/w": 403}, play_for_ever, "heartbeat failed"),
    ],
)
async def test_whatever_is_answered_no_log_shows_the_token(client, proxy, caplog, refused, play, said):
    caplog.set_level(logging.DEBUG)
    proxy.refused = refused
    await enqueue(client, 1)
    afar = StoreClient(proxy.url, retry_seconds=0.3, token=TOKEN)
    running = asyncio.create_task(Worker(afar, play, "w", heartbeat_seconds=0.1).run())
    async with asyncio.timeout(60):
        await until(lambda: said in caplog.text)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await afar.close()
    assert "ClientResponseError: " in caplog.text
    assert TOKEN not in caplog.text


async def test_spans_that_are_too_large_fail_their_attempt_and_not_the_runner(client, proxy, afar):
    proxy.refused = {"/v1/traces": 413}
    ids = await enqueue(client, 1)

    async def failed():
        return [attempt for attempt in await client.query_attempts(ids[0]) if attempt.status == "failed"]

    async with working(Worker(afar, Play(), "w", heartbeat_seconds=0.2)):
        await until(failed)
        proxy.refused = {}
        await all_closed(client, ids)
    assert "--max-request-mb" in (await failed())[0].metadata["reason"]
    assert (await check_played_once(client, ids))["succeeded"] == 1


@pytest.mark.soak
@pytest.mark.timeout(900)
@BOTH_HUBS
@pytest.mark.parametrize("seed", range(2, 5))
async def test_faults_by_chance_for_long(client, proxy, seed):
    """A fifth of all requests suffers, of several runners' at once."""
    ids = await enqueue(client, 300, unresponsive_seconds=2.0)
    clients = [StoreClient(proxy.url, RETRY_SECONDS, request_timeout_seconds=SHORT_ANSWER_SECONDS) for _ in "abc"]
    workers = [Worker(afar, Play(), f"w{n}", max_concurrent=4, heartbeat_seconds=0.3) for n, afar in enumerate(clients)]
    proxy.by_chance(seed, 1 / 5)
    try:
        async with working(*workers, seconds=800):
            await all_closed(client, ids)
            proxy.by_chance(seed, 0.0)
        await check_played_once(client, ids)
        assert {fault for _, fault in proxy.hit} == set(Fault)
    finally:
        for each in clients:
            await each.close()
