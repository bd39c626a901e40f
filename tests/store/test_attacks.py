"""What somebody who reaches a hub may try, on a real hub with bare sockets. Each worked on an earlier version."""

import asyncio
import gzip
import json
import socket
import sqlite3

import aiohttp
import psutil
import pytest

from tests.support.hub.hub_process import HubProcess

TOKEN = "jIwG7-long-and-secret"
ANSWER_SECONDS = 20


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    """A hub with a token."""
    hub = HubProcess(tmp_path_factory.mktemp("guarded"), AGL_TOKEN=TOKEN)
    asyncio.run(hub.start())
    yield hub
    hub.kill()


def ask(hub, head: str, body: bytes = b"") -> bytes:
    """The beginning of the answer to a request that may be incomplete; TimeoutError if there is none."""
    with socket.create_connection(("127.0.0.1", hub.port), timeout=ANSWER_SECONDS) as connection:
        connection.sendall(head.replace("\n", "\r\n").encode() + b"\r\n" + body)
        return connection.recv(65536)


@pytest.mark.parametrize(("method", "status"), [("POST", 405), ("GET", 200)])
def test_a_health_check_is_answered_before_its_body_has_come(guarded, method, status):
    head = f"{method} /v1/agl/health HTTP/1.1\nHost: 127.0.0.1\nContent-Length: 60000000\n"
    assert ask(guarded, head, b"x" * 100_000).startswith(f"HTTP/1.1 {status}".encode())


@pytest.fixture(scope="module")
def open_hub(tmp_path_factory):
    """A hub for this machine, without a token, that a proxy calls by a name."""
    hub = HubProcess(
        tmp_path_factory.mktemp("open"), "--public-name", "hub.example", "--cors-origin", "http://page.example"
    )
    asyncio.run(hub.start())
    yield hub
    hub.kill()


def dequeue(hub, *headers: str) -> bytes:
    return ask(
        hub, "POST /v1/agl/queues/rollouts/dequeue HTTP/1.1\nContent-Length: 0\n" + "".join(f"{h}\n" for h in headers)
    )


@pytest.mark.parametrize(
    "name", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "hub.example.evil"]
)
def test_a_page_with_dns_rebinding_dequeues_no_game(open_hub, name):
    for host in (name, f"{name}:{open_hub.port}", name.upper()):
        assert dequeue(open_hub, f"Host: {host}").startswith(b"HTTP/1.1 421"), host


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://127.0.0.1:8080", "http://hub.example.evil", "x"]
)
def test_a_page_of_another_site_takes_no_game(open_hub, origin):
    own = f"127.0.0.1:{open_hub.port}"
    assert dequeue(open_hub, f"Host: {own}", f"Origin: {origin}").startswith(b"HTTP/1.1 403")


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "LOCALHOST", "a.localhost", "[::1]", "10.1.2.3", "hub.example"]
)
def test_its_own_names_and_pages_are_let_in(open_hub, host):
    own = f"{host}:{open_hub.port}"
    assert dequeue(open_hub, f"Host: {own}").startswith(b"HTTP/1.1 200")
    for origin in (f"http://{own}", "http://page.example", "https://hub.example", "http://hub.example:99"):
        assert dequeue(open_hub, f"Host: {own}", f"Origin: {origin}").startswith(b"HTTP/1.1 200"), origin


def memory(hub) -> int:
    return psutil.Process(hub.process.pid).memory_info().rss


def lists(name: str, megabytes: int) -> bytes:
    return f'{{"{name}": ['.encode() + b"[]," * (megabytes * 1024 * 1024 // 3) + b"1]}"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("queues/rollouts/enqueue", lists("rollouts", 60)),
        ("workers/w", lists("heartbeat_stats", 15)),
    ],
)
def test_a_body_of_very_many_values_is_refused_before_it_is_taken_apart(open_hub, path, body):
    before = memory(open_hub)
    assert post(open_hub, f"/v1/agl/{path}", "application/json", body, 15 * 1024 * 1024 + 100) == 413
    assert memory(open_hub) - before < 100e6


def post(hub, path: str, kind: str, body: bytes, sent: int | None = None, *headers: str) -> int:
    """The status of the answer. sent: how many bytes of the body are."""
    head = f"POST {path} HTTP/1.1\nHost: 127.0.0.1\nContent-Type: {kind}\nContent-Length: {len(body)}\n"
    return int(ask(hub, head + "".join(f"{one}\n" for one in headers), body[:sent]).split()[1])


def post_packed(hub, body: bytes) -> int:
    return post(hub, "/v1/traces", "application/x-protobuf", body, None, "Content-Encoding: gzip")


SPAN = {"rollout_id": "r", "attempt_id": "a", "sequence_id": 1, "trace_id": "0", "span_id": "0", "parent_id": None}
SPAN |= {"name": "n", "status": {"status_code": "OK"}, "events": [], "links": [], "start_time": 1, "end_time": 1}
SPAN |= {"context": None, "parent": None, "resource": {"attributes": {}, "schema_url": ""}}
TASK = {"input": 1, "config": {"retry_condition": [1] * 200_000}}
INVALID = {
    "tasks": ("queues/rollouts/enqueue", {"rollouts": [1] * 400_000}),
    "conditions": ("queues/rollouts/enqueue", {"rollouts": [TASK]}),
    "mixed attributes": ("spans", {**SPAN, "attributes": {"x": [1, "a"] * 200_000}}),
    "events": ("spans", {**SPAN, "attributes": {}, "events": [1] * 400_000}),
    "empty events": ("spans", {**SPAN, "attributes": {}, "events": [{}] * 200_000}),
    "attributes of a resource": (
        "spans",
        {**SPAN, "attributes": {}, "resource": {"attributes": dict.fromkeys(map(str, range(400_000)))}},
    ),
    "a trace's state": (
        "spans",
        {**SPAN, "attributes": {}, "context": {"trace_state": dict.fromkeys(map(str, range(400_000)), 1)}},
    ),
}


@pytest.mark.parametrize(("path", "content"), INVALID.values(), ids=INVALID)
def test_of_very_many_faults_only_the_first_is_told(open_hub, path, content):
    before = memory(open_hub)
    assert post(open_hub, f"/v1/agl/{path}", "application/json", json.dumps(content).encode()) == 422
    assert memory(open_hub) - before < 150e6


def field(number: int, content: bytes) -> bytes:
    """A part of a protobuf message."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def varint(value: int) -> bytes:
    digits = b""
    while value >= 128:
        digits, value = digits + bytes([value & 127 | 128]), value >> 7
    return digits + bytes([value])


def attribute(name: str, value: bytes) -> bytes:
    return field(1, name.encode()) + field(2, value)


def span_with(parts: bytes) -> bytes:
    ids = ("agentlightning.rollout_id", "agentlightning.attempt_id")
    return field(2, b"".join(field(9, attribute(name, field(1, b"x"))) for name in ids) + parts)


def one_span(parts: bytes) -> bytes:
    return field(1, field(2, span_with(parts)))


EMPTY = field(1, b"")
"""A value of a list that has no value."""
GROUP = b"\xa3\x06\xa4\x06"
"""One of the parts that no message of ours has, and that parsers skip."""
MIXED = EMPTY[:1] + b"\2\x18\1" + field(1, b"\n\0")
OTLP = {
    "spans": field(1, field(2, b"\x12\x00" * 10_000_000)),
    "values": one_span(field(9, attribute("x", field(5, EMPTY * 30_000_000)))),
    "mixed values": one_span(field(9, attribute("x", field(5, MIXED * 150_000)))),
    "attributes": one_span(b"\x4a\x00" * 400_000),
    "values of events": one_span(field(11, field(3, attribute("x", field(5, EMPTY * 400_000))))),
    "values of a resource": field(1, field(1, field(1, attribute("x", field(5, EMPTY * 400_000))))),
    "spans behind a group": GROUP + field(1, field(2, b"\x12\x00" * 10_000_000)),
    "a resource that is repeated": field(
        1, field(2, span_with(b"") * 15_000) + field(1, field(1, attribute("x", field(1, b"x" * 20_000_000))))
    ),
    "a schema that is repeated": field(1, field(2, span_with(b"") * 15_000) + field(3, b"x" * 20_000_000)),
    "links": one_span(b"\x6a\x00" * 100_000),
    "numbers": b"\x08\x01" * 30_000_000,
}


@pytest.mark.parametrize("body", OTLP.values(), ids=OTLP)
def test_of_very_many_parts_of_a_request_none_is_made(open_hub, body):
    before = memory(open_hub)
    assert post_packed(open_hub, gzip.compress(body, 1)) == 400
    assert memory(open_hub) - before < 150e6


def test_a_refused_bomb_leaves_nothing_in_memory(open_hub):
    bomb = gzip.compress(GROUP * 50_000_000, 1)
    assert post_packed(open_hub, bomb) == 413
    before = memory(open_hub)
    for _ in range(15):
        assert post_packed(open_hub, bomb) == 413
        assert memory(open_hub) - before < 100e6


CHUNKED = b"POST /v1/traces HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n"


@pytest.mark.parametrize(("head", "more"), [(b"GET / HTTP/1.1\r\nX: ", b"x"), (CHUNKED, b"X: " + b"x" * 97 + b"\r\n")])
def test_a_header_or_trailers_without_end_are_cut_off(guarded, open_hub, head, more):
    hub = open_hub if head == CHUNKED else guarded
    before = memory(hub)
    with socket.create_connection(("127.0.0.1", hub.port), timeout=ANSWER_SECONDS) as connection:
        connection.sendall(head)
        with pytest.raises(ConnectionError):
            for _ in range(200):
                connection.sendall(more * (1_000_000 // len(more)))
    assert memory(hub) - before < 50e6


def test_requests_that_nobody_waits_for_are_cut_off(guarded):
    """Each is answered with 401, and uvicorn reads on after each answer."""
    before = memory(guarded)
    address = "127.0.0.1", guarded.port
    with socket.create_connection(address, timeout=ANSWER_SECONDS) as connection, pytest.raises(ConnectionError):
        for _ in range(50):
            connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 40_000)
    assert memory(guarded) - before < 50e6


async def test_bodies_that_wait_for_the_database_are_bounded_too(tmp_path):
    hub = await HubProcess(tmp_path, "--max-request-mb", "4").start()
    lock = sqlite3.connect(hub.database, isolation_level=None)
    lock.execute("BEGIN IMMEDIATE")
    before = memory(hub)
    span = {**SPAN, "attributes": {"x": "x" * 900_000}}
    body, headers = gzip.compress(json.dumps(span).encode()), {"Content-Encoding": "gzip"}
    headers["Content-Type"] = "application/json"
    async with aiohttp.ClientSession(headers=headers) as session:
        sent = [asyncio.create_task(session.post(f"{hub.url}/v1/agl/spans", data=body)) for _ in range(100)]
        done, waiting = await asyncio.wait(sent, return_when=asyncio.FIRST_COMPLETED)
        while len(done) < 40:
            more, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            done |= more
        assert {one.result().status for one in done} == {503} and memory(hub) - before < 150e6
        async with session.post(f"{hub.url}/v1/agl/resources/latest", data=b"{}") as small:
            assert small.status != 503
        lock.execute("ROLLBACK")
        later = [(await one).status for one in waiting]
        assert {*later} <= {404, 503} and later.count(404) > 10  # there is no such rollout
    lock.close()
    hub.kill()


def test_spans_of_no_attempt_are_counted_in_one_line_of_log(open_hub):
    name = "agentlightning.rollout_id"
    forged = field(9, attribute(name, field(1, b"x\n12:00:00 the hub has stopped\x1b[31m")))
    assert post_packed(open_hub, gzip.compress(field(1, field(2, field(2, forged) * 5000)))) == 200
    bad = field(9, attribute("agentlightning.span_sequence_id", field(1, b"x" * 1000)))
    assert post_packed(open_hub, gzip.compress(one_span(bad))) == 400
    said = open_hub.log.read_text()
    assert "5000 spans without a rollout id and an attempt id are not stored" in said and "has stopped" not in said


async def test_a_foreign_lock_on_the_database_stops_nobody_who_does_not_write(tmp_path):
    hub = await HubProcess(tmp_path).start()
    lock = sqlite3.connect(hub.database, isolation_level=None)
    lock.execute("BEGIN IMMEDIATE")
    async with aiohttp.ClientSession() as session:
        dequeue = f"{hub.url}/v1/agl/queues/rollouts/dequeue"
        writing = [asyncio.create_task(session.post(dequeue, json={})) for _ in range(10)]
        for _ in range(10):  # the first of them may be there before the writes are
            for path in ("health", "rollouts?limit=1"):
                async with session.get(f"{hub.url}/v1/agl/{path}") as response:
                    assert response.status == 200
            await asyncio.sleep(0.02)  # spread over the time of the writes
        assert not any(one.done() for one in writing)
        lock.execute("ROLLBACK")
        assert {answer.status for answer in await asyncio.gather(*writing)} == {200}
    lock.close()
    hub.kill()
