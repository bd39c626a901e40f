"""The client against the stock hub: outages, and a hub that has forgotten everything or something."""

import asyncio
from types import SimpleNamespace

import pytest
from aiohttp import web

from store.client import _batches, connect
from store.protocol import EnqueueRolloutRequest
from tests.support import fakes
from tests.support.agents.http_service import HttpService
from tests.support.fakes import make_result, make_turn
from tests.support.hub.asking import take


async def start_game(client):
    await client.enqueue_many_rollouts([EnqueueRolloutRequest(input={"n": 1})])
    return await take(client, "w")


def spans_of(rollout):
    return fakes.spans_of([make_turn(), make_result()], rollout.rollout_id, rollout.attempt.attempt_id)


async def test_upload_waits_for_a_hub_that_is_away_and_reports_what_it_forgot(hub, client):
    rollout = await start_game(client)
    await hub.stop()
    upload = asyncio.create_task(client.upload_spans(spans_of(rollout)))
    await asyncio.sleep(0)
    await hub.start()
    assert await asyncio.wait_for(upload, 20) == {(rollout.rollout_id, rollout.attempt.attempt_id)}


async def test_one_forgotten_game_does_not_cost_the_others_their_spans(client):
    known = await start_game(client)
    forgotten = known.model_copy(
        update={"rollout_id": "ro-gone", "attempt": known.attempt.model_copy(update={"rollout_id": "ro-gone"})}
    )
    refused = await client.upload_spans([*spans_of(forgotten), *spans_of(known)])
    assert refused == {("ro-gone", known.attempt.attempt_id)}
    assert len(await client.query_spans(known.rollout_id)) == 2


@pytest.mark.parametrize(
    ("value", "each"), [("x" * 5_000_000, 3), ([0.0] * 90_000, 2), ("", 200)], ids=["texts", "lists", "spans"]
)
def test_a_request_has_no_more_spans_than_a_hub_accepts(value, each):
    spans = [SimpleNamespace(attributes={"value": value}) for _ in range(2 * each + 1)]
    batches = list(_batches(spans))
    assert [len(batch) for batch in batches] == [each, each, 1]
    assert [span for batch in batches for span in batch] == spans


async def test_a_request_outlives_more_hubs_than_the_stock_client_tries():
    met = []

    async def answer(request):
        if request.path.endswith("/health"):
            return web.json_response({"status": "ok"})
        met.append(request.path)
        if len(met) <= 8:
            request.transport.close()  # as of a hub that is killed while it works
        return web.json_response({"total_rollouts": 1})

    service = HttpService()
    service.answer = answer
    await service.start()
    client = connect(f"http://127.0.0.1:{service.port}", retry_seconds=20)
    try:
        assert await client.request("get", "/statistics") == {"total_rollouts": 1} and len(met) > 8
    finally:
        await client.close()
        await service.stop()
