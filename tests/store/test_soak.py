"""The hub's promises at length (minutes, `pytest -m soak`): every moment to die, many kills, many games, its speed."""

import asyncio
import random
import time

import psutil
import pytest
from agentlightning import EnqueueRolloutRequest

from store.client import connect
from tests.store.test_crash_safety import die_often
from tests.store.test_hub_process import play_with_kills
from tests.store.test_retention import spans_of, stay_bounded
from tests.support.hub.hub_process import HubProcess

pytest_plugins = ("tests.support.hub.hub_backends",)

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]


async def test_killed_before_every_statement(engine, request, tmp_path):
    await die_often(engine, request, tmp_path, seed=3)


@pytest.mark.parametrize("seed", range(10))
async def test_kill_9_many_times(tmp_path, seed):
    await play_with_kills(tmp_path, random.Random(seed), kills=25)


async def test_file_and_memory_stay_bounded_over_many_games(tmp_path):
    await stay_bounded(tmp_path, tmp_path / "hub.sqlite3", tmp_path / "archive", rounds=40, games=100, spans=60)


async def test_it_is_about_as_fast_as_the_stock_memory_hub(tmp_path):
    """Prints games per second and the hub's CPU milliseconds per game, 60 spans a game, 8 games at a time."""
    costs = {}
    for backend in ("memory", "sqlite"):
        (tmp_path / backend).mkdir()
        hub = HubProcess(tmp_path / backend, "--backend", backend)
        await hub.start()
        costs[backend] = await measure(hub, games=200)
        hub.kill()
        print(f"{backend}: %.1f games/s, %.1f ms of the hub's CPU a game" % costs[backend])
    assert costs["sqlite"][1] < 2 * costs["memory"][1]


async def measure(hub, games):
    """(games per second, the hub's CPU milliseconds per game)."""
    client = connect(hub.url)
    process = psutil.Process(hub.process.pid)
    at_once = asyncio.Semaphore(8)

    async def play():
        async with at_once:
            taken = await client.dequeue_rollout(worker_id="w")
            spans = spans_of(taken, 60)
            for first in range(0, 60, 20):
                assert not await client.upload_spans(spans[first : first + 20])
            await client.update_attempt(taken.rollout_id, taken.attempt.attempt_id, status="succeeded")
            assert len(await client.query_spans(taken.rollout_id)) == 60

    started, used = time.perf_counter(), sum(process.cpu_times()[:2])
    await client.enqueue_many_rollouts([EnqueueRolloutRequest(input=n) for n in range(games)])
    await asyncio.gather(*(play() for _ in range(games)))
    result = games / (time.perf_counter() - started), (sum(process.cpu_times()[:2]) - used) / games * 1000
    await client.close()
    return result
