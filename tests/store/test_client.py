"""The client against the stock hub: outages, and a hub that has forgotten everything or something."""

import asyncio
from types import SimpleNamespace

import aiohttp
import pytest
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from configs.loading import load_config
from store.client import _SPANS_PER_REQUEST, NotAHub, StoreClient, StoreUnreachable, _span_size, batches, connect
from store.protocol import LONGEST_REASON, EnqueueRolloutRequest
from store.status import HubUnreachable, ask
from tests.support import fakes
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
    assert (await asyncio.wait_for(upload, 20)).keys() == {(rollout.rollout_id, rollout.attempt.attempt_id)}


async def test_the_reason_of_a_failed_attempt_can_be_stored_whatever_it_holds(client):
    rollout = await start_game(client)
    await client.end_attempt(rollout.rollout_id, rollout.attempt.attempt_id, "failed", "\ud83d" * 10_000)
    (attempt,) = await client.query_attempts(rollout.rollout_id)
    assert attempt.metadata == {"reason": "?" * LONGEST_REASON}


async def test_one_forgotten_game_does_not_cost_the_others_their_spans(client):
    known = await start_game(client)
    forgotten = known.model_copy(
        update={"rollout_id": "ro-gone", "attempt": known.attempt.model_copy(update={"rollout_id": "ro-gone"})}
    )
    refused = await client.upload_spans([*spans_of(forgotten), *spans_of(known)])
    assert refused.keys() == {("ro-gone", known.attempt.attempt_id)}
    assert len(await client.query_spans(known.rollout_id)) == 2


@pytest.mark.parametrize(
    ("value", "each"), [("x" * 5_000_000, 3), ([0.0] * 90_000, 2), ("", 200)], ids=["texts", "lists", "spans"]
)
def test_a_request_has_no_more_spans_than_a_hub_accepts(value, each):
    spans = [SimpleNamespace(attributes={"value": value}) for _ in range(2 * each + 1)]
    parts = list(batches(spans, _span_size, _SPANS_PER_REQUEST))
    assert [len(part) for part in parts] == [each, each, 1]
    assert [span for part in parts for span in part] == spans


@pytest.fixture
async def its_client(http_service):
    client = connect(f"http://127.0.0.1:{http_service.port}", retry_seconds=100)
    yield client
    await client.close()


@pytest.mark.parametrize("status", [400, 403, 421])
async def test_a_hub_that_rejects_requests_says_why_at_once(http_service, its_client, status):
    async def answer(request):
        if request.path.endswith("/health"):
            return web.json_response({"status": "ok"})
        return web.json_response({"detail": "start the hub with --public-name\x1b[2J" + "x" * 1000}, status=status)

    http_service.answer = answer
    async with asyncio.timeout(20):
        with pytest.raises(StoreUnreachable, match=f"rejects requests.*{status}.*--public-name\ufffd") as raised:
            await its_client.wait_until_reachable()
        assert len(str(raised.value)) < 1000
        with pytest.raises(aiohttp.ClientResponseError, match="--public-name"):
            await its_client.query_rollouts()
        async with aiohttp.ClientSession() as session:
            with pytest.raises(HubUnreachable, match="--public-name"):
                await ask(session, its_client.server_address_root)


async def test_an_address_that_redirects_is_named_and_a_request_keeps_its_method(http_service, its_client):
    """A POST that followed would arrive as a GET, whose answer is none to it."""

    async def answer(request):
        return web.Response(status=301, headers={"Location": f"//elsewhere.example/hub{request.path}"})

    http_service.answer = answer
    async with asyncio.timeout(20):
        with pytest.raises(StoreUnreachable, match=r"rejects requests.*use the address http://elsewhere.example/hub'"):
            await its_client.wait_until_reachable()
        with pytest.raises(aiohttp.ClientResponseError, match="redirects"):
            await its_client.update_worker("w", {})


@pytest.mark.parametrize("text", ["", "<html>", "true", "[" * 100_000])
async def test_a_server_that_is_no_hub_is_reported_at_once(http_service, its_client, text):
    async def answer(request):
        content_type = "application/json" if text == "true" else "text/html"
        return web.Response(text=text, content_type=content_type)

    http_service.answer = answer
    async with asyncio.timeout(20):
        with pytest.raises(NotAHub, match=f"127.0.0.1:{http_service.port} is not a hub"):
            await its_client.wait_until_reachable()


async def test_what_a_proxy_says_without_a_hub_is_waited_for(http_service, its_client):
    async def answer(request):
        return web.Response(status=200 if len(http_service.asked) > 3 else 404, text="{}")

    http_service.answer = answer
    await its_client.wait_until_reachable()


@pytest.mark.parametrize("body", ["", "<html>", "[" * 10_000, '{"detail": ""}', '{"detail"', "[]", "x" * 100_000])
async def test_an_error_without_a_reason_has_that_of_its_status(http_service, its_client, body):
    async def answer(request):
        return web.Response(status=403, text=body)

    http_service.answer = answer
    with pytest.raises(aiohttp.ClientResponseError) as raised:
        await its_client.query_rollouts()
    assert raised.value.message == "Forbidden"


async def test_a_span_that_is_too_large_costs_its_own_attempt(http_service, its_client):
    stored = []

    async def answer(request):
        request_body = ExportTraceServiceRequest.FromString(await request.read())
        spans = [span for group in request_body.resource_spans for scope in group.scope_spans for span in scope.spans]
        if len(spans) > 3 or any(span.ByteSize() > 100_000 for span in spans):
            return web.json_response({"detail": "a request may have 7 bytes"}, status=413)
        stored.extend(span.span_id.hex() for span in spans)
        return web.Response(content_type="application/x-protobuf")

    http_service.answer = answer
    turns = [fakes.make_turn(turn=number) for number in range(5)]
    small, large = fakes.spans_of(turns, "ro-small", "at"), fakes.spans_of(turns, "ro-large", "at")
    large[2].attributes["reply"] = "x" * 200_000
    refused = await its_client.upload_spans([*small, *large])
    assert refused.keys() == {("ro-large", "at")}
    assert "a request may have 7 bytes" in refused["ro-large", "at"] and "--max-request-mb" in refused["ro-large", "at"]
    assert stored == [span.span_id for span in [*small, *large] if span is not large[2]]


async def test_spans_that_a_proxys_page_answers_are_sent_again(http_service, its_client):
    sent = []

    async def answer(request):
        if request.path != "/v1/traces":
            return web.json_response({"status": "ok"})
        sent.append(request.path)
        if len(sent) == 1:
            return web.Response(text="<html>back soon", content_type="text/html")
        return web.Response(content_type="application/x-protobuf")

    http_service.answer = answer
    assert await its_client.upload_spans(fakes.spans_of([fakes.make_turn()], "ro", "at")) == {}
    assert sent == ["/v1/traces"] * 2


async def test_an_error_of_a_request_does_not_show_the_token(http_service):
    async def answer(request):
        assert request.headers["Authorization"] == "Bearer sesame"
        return web.Response(status=403)

    http_service.answer = answer
    client = StoreClient(f"http://127.0.0.1:{http_service.port}", 1, token="sesame")
    with pytest.raises(aiohttp.ClientResponseError) as raised:
        await client.query_rollouts()
    assert "sesame" not in repr(raised.value)
    await client.close()


async def test_a_request_outlives_more_hubs_than_the_stock_client_tries(http_service, its_client):
    met = []

    async def answer(request):
        if request.path.endswith("/health"):
            return web.json_response({"status": "ok"})
        met.append(request.path)
        if len(met) <= 8:
            request.transport.close()  # as of a hub that is killed while it works
        return web.json_response({"total_rollouts": 1})

    http_service.answer = answer
    assert await its_client.request("get", "/statistics") == {"total_rollouts": 1} and len(met) > 8


async def test_outages_do_not_count_as_errors_of_the_hub(http_service, its_client):
    statuses = [503] * 6 + [500, 200]

    async def answer(request):
        status = statuses.pop(0) if request.path.endswith("/statistics") else 200
        return web.json_response({"status": "ok"}, status=status)

    http_service.answer = answer
    assert await its_client.request("get", "/statistics") == {"status": "ok"} and not statuses


@pytest.mark.parametrize(
    "url",
    [
        "127.0.0.1:4747",
        "http://",
        "http://[::1",
        "http://h:99999",
        "http://u:secret@h",
        "http://u:secret",
        "http://h?x=secret",
    ],
)
def test_an_address_that_is_none_is_refused_without_its_text(url):
    for use in (lambda: connect(url, token=""), lambda: load_config(None, [f"store.url={url}"])):
        with pytest.raises(ValueError, match="must") as raised:
            use()
        assert "secret" not in str(raised.value)
