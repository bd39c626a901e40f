"""A game whose model is slow is not given to another runner; one whose runner is dead is."""

import asyncio

import pytest

from runners.worker import Worker
from store.client import StoreClient, connect
from store.protocol import EnqueueRolloutRequest, RolloutConfig
from tests.support.fakes import make_result, make_turn
from tests.support.hub.asking import look_up, take
from tests.support.hub.hub_process import HubProcess, StockHub
from tests.support.waiting import until

SILENCE = 2.0
CONFIG = RolloutConfig(unresponsive_seconds=SILENCE, max_attempts=2, retry_condition=["unresponsive"])


class SlowPlay:
    """A ``Play`` that says nothing until it is let go."""

    def __init__(self):
        self.started, self.gate = asyncio.Event(), asyncio.Event()

    async def __call__(self, rollout, on_turn):
        self.started.set()
        await self.gate.wait()
        on_turn(make_turn(turn=0), 1.7e9, 1.7e9)
        return make_result()


@pytest.fixture(params=[HubProcess, StockHub], ids=["ours", "stock"])
async def client(request, tmp_path):
    hub = await request.param(tmp_path).start()
    client = connect(hub.url, 20)
    yield client
    await client.close()
    hub.kill()


async def test_a_game_without_spans_is_kept_alive_by_its_runner_and_by_nothing_else(client):
    play = SlowPlay()
    (rollout,) = await client.enqueue_many_rollouts([EnqueueRolloutRequest(input=1, config=CONFIG)])
    running = asyncio.create_task(Worker(client, play, "w", heartbeat_seconds=0.1, max_rollouts=1).run())
    await play.started.wait()

    async def outlived():
        """Its runner has kept it alive for longer than its silence may be."""
        attempt = (await client.query_attempts(rollout.rollout_id))[-1]
        return attempt if (attempt.last_heartbeat_time or 0) - attempt.start_time > 1.5 * SILENCE else None

    attempt = await until(outlived)
    assert attempt.status == "preparing" and attempt.sequence_id == 1
    play.gate.set()
    assert (await running).finished == 1
    (attempt,) = await client.query_attempts(rollout.rollout_id)
    assert attempt.status == "succeeded"

    (rollout,) = await client.enqueue_many_rollouts([EnqueueRolloutRequest(input=1, config=CONFIG)])
    await take(client, "dead")

    async def is_requeued():
        return (await look_up(client, rollout.rollout_id)).status == "requeuing"

    await until(is_requeued)


class Recording(StoreClient):
    """Remembers what it asked for."""

    def __init__(self, url):
        super().__init__(url, 20)
        self.asked, self.asked_again = [], asyncio.Condition()

    async def request(self, method, path, *body, **query):
        answer = await super().request(method, path, *body, **query)
        async with self.asked_again:
            self.asked.append(path)
            self.asked_again.notify_all()
        return answer


async def test_all_games_of_a_process_are_kept_alive_by_one_request(tmp_path):
    hub = await HubProcess(tmp_path).start()
    client, play = Recording(hub.url), SlowPlay()
    tasks = [EnqueueRolloutRequest(input=n, config=CONFIG) for n in range(6)]
    await client.enqueue_many_rollouts(tasks)
    running = asyncio.create_task(Worker(client, play, "w", heartbeat_seconds=0.05, max_rollouts=6).run())
    alive = "/queues/attempts/alive"
    async with asyncio.timeout(30), client.asked_again:
        await client.asked_again.wait_for(lambda: client.asked.count(alive) >= 2)
    assert not [path for path in client.asked if path.startswith("/rollouts/") and "/attempts/" in path]
    attempts = [one.attempt for one in await client.query_rollouts()]
    assert len({attempt.last_heartbeat_time for attempt in attempts}) == 1
    assert {attempt.status for attempt in attempts} == {"preparing"}
    play.gate.set()
    assert (await running).finished == 6
    await client.close()
    hub.kill()
