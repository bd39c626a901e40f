"""The client against the stock hub: bulk upload, outages, a hub that has forgotten everything."""

import asyncio

import aiohttp
import pytest
from aiohttp import web

from algo.machine.ports import free_port
from store.client import StoreUnreachable, connect
from store.protocol import EnqueueRolloutRequest
from store.token_spans import to_span
from store.werewolf import ResultSpan, TurnSpan, is_result, is_turn
from tests.support.fakes import make_result, make_turn
from tests.support.hub.asking import final_reward, look_up, take

# agentlightning tells seconds from nanoseconds by size, so the times must be plausible.
NOW = 1_700_000_000.0


async def start_game(client):
    await client.enqueue_many_rollouts([EnqueueRolloutRequest(input={"n": 1})])
    return await take(client, "w")


def spans_of(rollout, count=3):
    ids = dict(rollout_id=rollout.rollout_id, attempt_id=rollout.attempt.attempt_id)
    turns = [
        to_span(make_turn(turn=n), **ids, sequence_id=n + 1, start_time=NOW + n, end_time=NOW + n + 0.5)
        for n in range(count)
    ]
    return [*turns, to_span(make_result(), **ids, sequence_id=count + 1, start_time=NOW + 9, end_time=NOW + 9)]


async def test_bulk_upload_stores_what_was_sent_in_order(client):
    rollouts = [await start_game(client) for _ in range(2)]
    sent = [span for rollout in rollouts for span in spans_of(rollout)]
    assert await client.upload_spans(sent) == set()
    for rollout in rollouts:
        stored = list(await client.query_spans(rollout.rollout_id, rollout.attempt.attempt_id))
        assert [span.sequence_id for span in stored] == [1, 2, 3, 4]
        assert [TurnSpan.decode(span).turn for span in stored if is_turn(span)] == [0, 1, 2]
        assert [ResultSpan.decode(span) for span in stored if is_result(span)] == [make_result()]
        assert (stored[0].start_time, stored[0].end_time) == (NOW, NOW + 0.5)
        assert final_reward(stored) == -1.0
    assert (await look_up(client, rollouts[0].rollout_id)).status == "running"


async def test_sending_a_span_twice_stores_it_once(client):
    rollout = await start_game(client)
    await client.upload_spans(spans_of(rollout)[:2])
    assert await client.upload_spans(spans_of(rollout)) == set()
    assert len(await client.query_spans(rollout.rollout_id)) == 4


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
    assert len(await client.query_spans(known.rollout_id)) == 4


async def test_a_request_rides_out_a_restart(hub, client):
    await hub.stop()
    request = asyncio.create_task(client.enqueue_many_rollouts([EnqueueRolloutRequest(input={"n": 1})]))
    await asyncio.sleep(0)
    await hub.start()
    assert len(await asyncio.wait_for(request, 20)) == 1


async def test_a_request_outlives_more_hubs_than_the_stock_client_tries():
    met = []

    async def answer(request):
        if request.path.endswith("/health"):
            return web.json_response({"status": "ok"})
        met.append(request.path)
        if len(met) <= 8:
            request.transport.close()  # as of a hub that is killed while it works
        return web.json_response({"total_rollouts": 1})

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    client = connect(f"http://127.0.0.1:{runner.addresses[0][1]}", retry_seconds=20)
    try:
        assert await client.request("get", "/statistics") == {"total_rollouts": 1} and len(met) > 8
    finally:
        await client.close()
        await runner.cleanup()


async def test_a_hub_that_is_away_is_not_one_without_games():
    client = connect(f"http://127.0.0.1:{free_port()}")
    try:
        with pytest.raises(aiohttp.ClientConnectionError):
            await client.dequeue_many_rollouts(limit=1, worker_id="w")
    finally:
        await client.close()


async def test_a_hub_that_never_answers_is_named_with_a_remedy():
    client = connect(f"http://127.0.0.1:{free_port()}")
    try:
        with pytest.raises(StoreUnreachable, match=r"http://127.0.0.1:\d+.*agl store"):
            await client.wait_until_reachable(retry_seconds=0.3)
    finally:
        await client.close()


def test_a_patience_without_end_is_refused():
    with pytest.raises(ValueError, match="finite"):
        connect("http://127.0.0.1:1", retry_seconds=float("inf"))


def test_an_address_without_scheme_is_refused():
    with pytest.raises(ValueError, match="http://"):
        connect("localhost:4747")
