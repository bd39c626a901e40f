"""Whatever the hub, or a gateway before it, answers: what a runner says of it does not show the token."""

import asyncio
import logging

import pytest

from runners.worker import Worker
from store.client import StoreClient, StoreUnreachable
from store.protocol import EnqueueRolloutRequest
from store.token_spans import to_span
from tests.support.fakes import make_result, make_turn
from tests.support.fault_proxy import FaultProxy
from tests.support.waiting import until

TOKEN = "jIwG7-long-and-secret"


@pytest.fixture
async def proxy(hub):
    proxy = FaultProxy(hub.url)
    await proxy.start()
    yield proxy
    await proxy.stop()


@pytest.fixture
async def afar(proxy):
    client = StoreClient(proxy.url, retry_seconds=0.3, token=TOKEN)
    yield client
    await client.close()


async def play_one_turn(rollout, on_turn):
    on_turn(make_turn(turn=0), 1.7e9, 1.7e9)
    return make_result()


async def play_and_fail(rollout, on_turn):
    raise KeyError("a bug")


async def play_for_ever(rollout, on_turn):
    on_turn(make_turn(turn=0), 1.7e9, 1.7e9)
    await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("refused", "play", "said"),
    [
        ({"/dequeue": 503}, play_one_turn, "dequeue got no response"),
        ({"/rollouts/search": 403}, play_one_turn, "the hub rejects its end"),
        ({"/rollouts/search": 403}, play_and_fail, "so it must time out"),
        ({"/v1/traces": 500, "/attempts/search": 403}, play_for_ever, "spans could not be sent"),
    ],
)
async def test_a_worker_does_not_log_its_token(client, proxy, afar, caplog, refused, play, said):
    caplog.set_level(logging.DEBUG)
    proxy.refused = refused
    await client.enqueue_many_rollouts([EnqueueRolloutRequest(input={"n": 1})])
    running = asyncio.create_task(Worker(afar, play, "w", heartbeat_seconds=0.1).run())
    async with asyncio.timeout(60):
        await until(lambda: said in caplog.text)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert "ClientResponseError: " in caplog.text
    assert TOKEN not in caplog.text


async def test_no_error_of_an_upload_shows_the_token(proxy, afar):
    proxy.refused = {"/v1/traces": 503}
    span = to_span(make_turn(), rollout_id="r", attempt_id="a", sequence_id=1, start_time=1.7e9, end_time=1.7e9)
    with pytest.raises(StoreUnreachable, match="ClientResponseError: 503") as raised:
        await afar.upload_spans([span])
    assert TOKEN not in str(raised.value)
