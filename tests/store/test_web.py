"""Bad requests: each gets a 4xx that says what is wrong, changes nothing, and leaves the stored data readable."""

import asyncio
import contextlib
import gzip
import json
import sqlite3

import httpx
import pytest
import uvicorn
from agentlightning import EnqueueRolloutRequest, RolloutConfig

from store.hub import body_limits, connections
from store.hub.server import Hub, HubSettings, listen
from store.otlp import encode_otlp
from tests.store.test_store_contract import contents, span

pytest_plugins = ("tests.support.hub.hub_backends",)

LARGEST = 20_000
JSON = {"Content-Type": "application/json"}
PROTOBUF = {"Content-Type": "application/x-protobuf"}
NESTED = "[" * 300 + "]" * 300
TRACES = "http://localhost/v1/traces"


@pytest.fixture
def store(file_store):
    return file_store


@pytest.fixture
def app(store, tmp_path):
    return Hub(store, HubSettings("127.0.0.1", 1, tmp_path, largest_request_bytes=4 * LARGEST), 1).app


@pytest.fixture
async def web(app):
    # As a real server does, it answers what an error leaves unanswered.
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost/v1/agl") as web:
        yield web


@pytest.fixture
async def playing(store):
    """A game under way, with one span, and a second game whose attempt does not belong to the first."""
    config = RolloutConfig(max_attempts=2, retry_condition=["failed"])
    await store.enqueue_many_rollouts([EnqueueRolloutRequest(input=n, config=config) for n in (1, 2)])
    first, second = await store.dequeue_many_rollouts(limit=2)
    await store.add_span(span(first))
    return first, second


def otlp(*spans):
    return encode_otlp({(s.rollout_id, s.attempt_id): [s] for s in spans})


async def check_refused(web, store, path, body, headers, status, fragment):
    before = await contents(store)
    response = await web.post(path, content=body, headers=headers)
    assert (response.status_code, fragment in response.text) == (status, True), response.text
    assert "Traceback" not in response.text and len(response.text) < 1000
    assert await contents(store) == before


ENQUEUE, NAN = "/queues/rollouts/enqueue", "cannot be stored: it contains NaN"
JSON_REQUESTS = {
    "broken JSON": (ENQUEUE, '{"rollouts": [{"inp', 422, "JSON decode error"),
    "not UTF-8": (ENQUEUE, b'{"rollouts": [{"input": "\xff"}]}', 422, "JSON decode error"),
    "NaN in an input": (ENQUEUE, '{"rollouts": [{"input": [NaN]}]}', 400, NAN),
    "NaN in a heartbeat": ("/workers/w", '{"heartbeat_stats": {"load": NaN}}', 400, NAN),
    "deep heartbeat": ("/workers/w", f'{{"heartbeat_stats": {{"x": {NESTED}}}}}', 400, "more than 200 levels"),
    "half a character": (ENQUEUE, r'{"rollouts": [{"input": "\ud800"}]}', 422, "hex escape"),
    "nested too deeply": (ENQUEUE, f'{{"rollouts": [{{"input": {NESTED}}}]}}', 422, "recursion limit"),
    "unknown resources": (ENQUEUE, '{"rollouts": [{"input": 1, "resources_id": "rs-gone"}]}', 404, "rs-gone"),
    "unknown rollout": ("/rollouts/ro-gone", '{"status": "cancelled"}', 404, "ro-gone"),
    "foreign attempt": ("/rollouts/{first}/attempts/{foreign}", '{"status": "failed"}', 404, "not found for rollout"),
    "null status": ("/rollouts/{first}", '{"status": null}', 400, "status"),
    "numbers for an unknown attempt": ("/spans/next", '{"rollout_id": "{first}", "attempt_id": "x"}', 404, "Attempt x"),
    "sorting by what has no order": ("/rollouts/search", '{"sort_by": "input"}', 400, "no field 'input'"),
    "absurd limit": ("/rollouts/search", '{"limit": 99999999999999999999}', 400, "limit"),
}


@pytest.mark.parametrize("name", JSON_REQUESTS)
async def test_a_bad_request_is_refused_and_changes_nothing(web, store, playing, name):
    path, body, status, fragment = JSON_REQUESTS[name]
    first, second = playing
    for old, new in (("{first}", first.rollout_id), ("{foreign}", second.attempt.attempt_id)):
        path = path.replace(old, new)
        body = body.replace(old, new) if isinstance(body, str) else body
    await check_refused(web, store, path, body, JSON, status, fragment)
    assert (await web.get("/rollouts")).json()["total"] == 2


@pytest.mark.parametrize(
    ("change", "status", "fragment"),
    [
        ({"attributes": {"x": [1.0, float("inf")]}}, 400, NAN),
        ({"attributes": {"x": {"y": 1}}}, 422, "attributes"),
        ({"sequence_id": 2**64}, 400, "2**53"),
        ({"attempt_id": "at-gone"}, 404, "at-gone"),
    ],
)
async def test_a_bad_span_is_refused(web, store, playing, change, status, fragment):
    good = span(playing[0], 2).model_dump()
    await check_refused(web, store, "/spans", json.dumps({**good, **change}), JSON, status, fragment)
    assert (await web.post("/spans", json=good)).status_code == 201


async def test_bad_spans_in_bulk_are_refused_whole(web, store, playing):
    first, second = playing
    good = span(first, 2)
    nested = otlp(good)
    attribute = nested.resource_spans[0].scope_spans[0].spans[0].attributes.add(key="x")
    attribute.value.kvlist_value.values.add(key="y").value.int_value = 1
    for bad, status, fragment in [
        (otlp(good, good.model_copy(update={"rollout_id": "ro-gone"})), 404, "ro-gone"),
        (otlp(good, good.model_copy(update={"attempt_id": "at-gone"})), 404, "at-gone"),
        (otlp(good, good.model_copy(update={"attempt_id": second.attempt.attempt_id})), 404, "not found for rollout"),
        (otlp(good, span(second).model_copy(update={"attributes": {"x": float("nan")}})), 400, NAN),
        (nested, 400, "attributes"),
    ]:
        await check_refused(web, store, TRACES, bad.SerializeToString(), PROTOBUF, status, fragment)
    body = otlp(good).SerializeToString()
    members = gzip.compress(body[:50]) + gzip.compress(body[50:])
    response = await web.post(TRACES, content=members, headers={**PROTOBUF, "Content-Encoding": "gzip"})
    assert response.status_code == 200 and len(await store.query_spans(first.rollout_id)) == 2


@pytest.mark.parametrize(
    ("body", "headers", "fragment"),
    [
        (b"\xff\xff\xff", PROTOBUF, b"Unable to parse OTLP"),
        (b"{}", JSON, b"Unsupported Content-Type"),
        (b"no gzip", {**PROTOBUF, "Content-Encoding": "gzip"}, b"not valid gzip"),
        (gzip.compress(b"x" * 100, mtime=0)[:-9], {**PROTOBUF, "Content-Encoding": "gzip"}, b"not valid gzip"),
    ],
)
async def test_a_body_that_is_no_spans_is_refused(web, body, headers, fragment):
    response = await web.post(TRACES, content=body, headers={**headers, "Accept-Encoding": "identity"})
    assert response.status_code == 400 and fragment in response.content


async def test_sizes_are_limited_however_the_body_comes(web):
    async def chunks(count):
        for _ in range(count):
            yield b" " * 1000

    bomb = gzip.compress(b" " * 10_000_000)
    assert len(bomb) < LARGEST
    for content, headers in [
        (b" " * (LARGEST + 1), JSON),
        (chunks(LARGEST // 1000 + 1), JSON),
        (chunks(LARGEST // 1000 + 1), {**JSON, "Content-Length": "10"}),
        (bomb, {**JSON, "Content-Encoding": "gzip"}),
    ]:
        response = await web.post(ENQUEUE, content=content, headers=headers)
        assert response.status_code == 413 and "20000 bytes" in response.text
    fits = json.dumps({"rollouts": [{"input": "x" * (LARGEST - 100)}]}).encode()
    for content, headers in [(fits, {}), (gzip.compress(fits), {"Content-Encoding": "GZIP"})]:
        response = await web.post(ENQUEUE, content=content, headers={**JSON, **headers})
        assert response.status_code == 201


async def test_internal_errors_are_reported_without_a_traceback(web, store, monkeypatch):
    def failing(error):
        async def fail(*_, **__):
            raise error

        return fail

    monkeypatch.setattr(store, "query_workers", failing(RuntimeError("a detail from inside")))
    response = await web.get("/workers")
    assert (response.status_code, response.json()) == (500, {"detail": "internal error; see the hub's log"})
    monkeypatch.setattr(store, "enqueue_many_rollouts", failing(sqlite3.OperationalError("database or disk is full")))
    response = await web.post(ENQUEUE, json={"rollouts": [{"input": 1}]})
    assert response.status_code == 503 and "disk is full" in response.text


async def answered(app, path, *messages):
    """The status of the answer to what a bare connection says."""
    coming, sent = list(messages), []

    async def receive():
        return coming.pop(0) if coming else await asyncio.Event().wait()

    async def send(message):
        sent.append(message)

    headers = [(b"content-type", b"application/json"), (b"content-length", b"10")]
    scope = {"type": "http", "method": "POST", "path": path, "headers": headers, "query_string": b"", "client": None}
    async with asyncio.timeout(20):
        await app({**scope, "http_version": "1.1"}, receive, send)
    return sent[0]["status"]


async def test_a_request_and_a_wait_end_with_their_connection(app, store, playing):
    gone = {"type": "http.disconnect"}
    assert await answered(app, f"/v1/agl{ENQUEUE}", gone) == 400
    assert await store.collections.rollouts.size() == 2
    wait = {"rollout_ids": [playing[0].rollout_id], "timeout": None}
    body = {"type": "http.request", "body": json.dumps(wait).encode()}
    assert await answered(app, "/v1/agl/waits/rollouts", body, gone) == 499  # 503 is for one that is cancelled


async def test_what_does_not_come_is_not_waited_for(app, monkeypatch):
    monkeypatch.setattr(body_limits, "_SECONDS", 0.05)
    monkeypatch.setattr(connections, "_SECONDS", 0.05)
    assert await answered(app, f"/v1/agl{ENQUEUE}") == 408
    protocol = connections.HeaderLimitProtocol
    server = uvicorn.Server(uvicorn.Config(app, http=protocol, ws="none", lifespan="off", log_config=None))
    with listen("127.0.0.1", 0) as listener:
        serving = asyncio.create_task(server.serve([listener]))
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        writer.write(b"GET /v1/agl/health HTTP/1.1\r\nHost: localhost\r\nX: ")
        with contextlib.suppress(ConnectionError):
            assert await asyncio.wait_for(reader.read(), 20) == b""
        writer.close()
        server.should_exit = True
        await serving


async def test_all_games_are_read_and_sent_in_pieces(web, store, monkeypatch):
    await store.enqueue_many_rollouts([EnqueueRolloutRequest(input=n) for n in range(2000)])
    await store.dequeue_many_rollouts(limit=3)
    sizes, select = [], store.collections.rollouts.select

    async def counted(*arguments):
        rollouts = await select(*arguments)
        sizes.append(len(rollouts))
        return rollouts

    monkeypatch.setattr(store.collections.rollouts, "select", counted)
    answer = (await web.get("/rollouts", params={"sort_by": "start_time", "offset": 1})).json()
    assert [rollout["input"] for rollout in answer["items"]] == list(range(1, 2000)) and answer["total"] == 2000
    part = (await web.get("/rollouts", params={"sort_by": "start_time", "offset": 5, "limit": 1200})).json()
    assert part == {"items": answer["items"][4:1204], "limit": 1200, "offset": 5, "total": 2000}
    assert max(sizes) <= 500
    page = (await web.get("/rollouts", params={"sort_by": "start_time", "offset": 1, "limit": 1000})).json()
    assert page == {**answer, "items": answer["items"][:1000], "limit": 1000} and max(sizes) == 1000
    queued = await web.post("/rollouts/search", json={"status_in": ["queuing"], "sort_by": "start_time"})
    assert queued.json()["items"] == answer["items"][2:]


async def test_a_large_page_leaves_out_games_that_are_deleted_meanwhile(web, store, monkeypatch):
    await store.enqueue_many_rollouts([EnqueueRolloutRequest(input=n) for n in range(500)])
    rollouts, at = store.collections.rollouts, store.collections.rollouts.at
    gone = list(await rollouts.positions({}, None))[:200]

    async def without_the_first(positions, sort):
        return await at([position for position in positions if position not in gone], sort)

    monkeypatch.setattr(rollouts, "at", without_the_first)
    page = (await web.get("/rollouts", params={"limit": -1})).json()
    assert [rollout["input"] for rollout in page["items"]] == list(range(200, 500))
