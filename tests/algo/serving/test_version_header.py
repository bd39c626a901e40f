import asyncio
import json

import pytest

from algo.serving.version_header import INITIAL_VERSION, PolicyVersionHeader


class Vllm:
    """A fake of vLLM's ASGI application: accepts what it is sent with ``status``, in two parts."""

    status = 200

    async def __call__(self, scope, receive, send):
        if scope["type"] != "http":
            await send({"type": scope["type"]})
            return
        self.body = b""
        more = True
        while more:
            message = await receive()
            self.body += message.get("body", b"")
            more = message.get("more_body", False)
        await send({"type": "http.response.start", "status": self.status, "headers": [(b"a", b"b")]})
        await send({"type": "http.response.body", "body": self.body})


@pytest.fixture(autouse=True)
def no_initial_version(monkeypatch):
    monkeypatch.delenv(INITIAL_VERSION, raising=False)


@pytest.fixture
def vllm():
    return Vllm()


async def call(app, path, body=b"{}", query=b""):
    """(status, headers, body) of a request whose body comes in two parts."""
    parts = [
        {"type": "http.request", "body": body[:5], "more_body": True},
        {"type": "http.request", "body": body[5:], "more_body": False},
    ]
    sent = []

    async def receive():
        return parts.pop(0)

    async def send(message):
        sent.append(message)

    await app({"type": "http", "path": path, "query_string": query}, receive, send)
    return sent[0]["status"], dict(sent[0]["headers"]), sent[1]["body"]


def new_version(version):
    return json.dumps({"new_version": version}).encode()


async def test_completions_tell_the_version_that_vllm_took_last(vllm):
    app = PolicyVersionHeader(vllm)
    vllm.status = 422
    assert (await call(app, "/update_weight_version", b'{"new": 1}'))[0] == 422
    vllm.status = 200
    status, headers, body = await call(app, "/v1/completions", b'{"prompt": [1]}')
    assert (status, body) == (200, b'{"prompt": [1]}')
    assert headers == {b"a": b"b", b"x-policy-version": b"0"}
    for version in ("7", "12"):
        status, headers, _ = await call(app, "/update_weight_version", new_version(version))
        assert status == 200 and headers == {b"a": b"b"} and vllm.body == new_version(version)
        assert (await call(app, "/v1/completions"))[1][b"x-policy-version"] == version.encode()


async def test_other_answers_are_left_as_they_are(vllm):
    app = PolicyVersionHeader(vllm)
    for path in ("/tokenize", "/v1/models", "/health"):
        assert (await call(app, path))[1] == {b"a": b"b"}
    sent = []

    async def send(message):
        sent.append(message)

    await app({"type": "lifespan"}, None, send)
    assert sent == [{"type": "lifespan"}]


async def test_completions_are_refused_while_the_weights_are_yet_to_come(vllm, monkeypatch):
    monkeypatch.setenv(INITIAL_VERSION, "")
    app = PolicyVersionHeader(vllm)
    status, headers, body = await call(app, "/v1/completions")
    assert status == 503 and b"x-policy-version" not in headers and "message" in json.loads(body)["error"]
    assert not hasattr(vllm, "body") and (await call(app, "/health"))[0] == 200
    await call(app, "/update_weight_version", new_version("3"))
    assert (await call(app, "/v1/completions"))[1][b"x-policy-version"] == b"3"


class SlowVllm(Vllm):
    """Answers completions, and a pause that finishes replies first, when it is let."""

    def __init__(self):
        self.begun, self.gate = asyncio.Event(), asyncio.Event()
        self.finishing, self.finished = asyncio.Event(), asyncio.Event()

    async def __call__(self, scope, receive, send):
        if scope["path"] == "/v1/completions":
            self.begun.set()
            await self.gate.wait()
        elif scope["path"] == "/pause" and scope["query_string"]:
            self.finishing.set()
            await self.finished.wait()
        await super().__call__(scope, receive, send)


async def test_a_reply_during_a_push_has_both_versions():
    vllm = SlowVllm()
    app = PolicyVersionHeader(vllm)
    under_way = asyncio.create_task(call(app, "/v1/completions"))
    await vllm.begun.wait()
    await call(app, "/pause")
    vllm.begun.clear()
    while_paused = asyncio.create_task(call(app, "/v1/completions"))
    for path in ("/v1/unload_lora_adapter", "/v1/load_lora_adapter", "/reset_prefix_cache"):
        await call(app, path)
        assert not vllm.begun.is_set()  # vLLM might just not know the policy's adapters
    await call(app, "/update_weight_version", new_version("7"))
    assert not vllm.begun.is_set()
    await call(app, "/resume")
    await vllm.begun.wait()
    vllm.begun.clear()
    afterwards = asyncio.create_task(call(app, "/v1/completions"))
    await vllm.begun.wait()
    vllm.gate.set()
    told = {b"x-policy-version": b"0", b"x-policy-version-until": b"7"}
    assert (await under_way)[1] == {b"a": b"b"} | told
    for later in (while_paused, afterwards):
        assert (await later)[1] == {b"a": b"b", b"x-policy-version": b"7"}


async def test_what_comes_while_replies_are_finished_is_of_the_new_weights_alone():
    vllm = SlowVllm()
    app = PolicyVersionHeader(vllm)
    pause = asyncio.create_task(call(app, "/pause", query=b"mode=wait"))
    await vllm.finishing.wait()
    waiting = asyncio.create_task(call(app, "/v1/completions"))
    vllm.finished.set()
    await pause
    assert not vllm.begun.is_set()
    await call(app, "/update_weight_version", new_version("7"))
    await call(app, "/resume")
    vllm.gate.set()
    assert (await waiting)[1] == {b"a": b"b", b"x-policy-version": b"7"}


async def test_replies_that_vllm_has_only_queued_are_finished_before_a_pause_too():
    vllm = SlowVllm()
    app = PolicyVersionHeader(vllm)
    queued = asyncio.create_task(call(app, "/v1/completions"))
    await vllm.begun.wait()
    pause = asyncio.create_task(call(app, "/pause", query=b"mode=wait"))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not pause.done() and not vllm.finishing.is_set()
    vllm.gate.set()
    vllm.finished.set()
    await pause
    assert (await queued)[1] == {b"a": b"b", b"x-policy-version": b"0"}


async def test_a_pause_that_brings_no_weights_ends_with_it(vllm):
    app = PolicyVersionHeader(vllm)
    await call(app, "/pause", query=b"mode=wait")
    waiting = asyncio.create_task(call(app, "/v1/completions"))
    await call(app, "/resume")
    assert (await waiting)[1][b"x-policy-version"] == b"0"


async def test_a_pause_that_breaks_off_keeps_nobody_waiting(vllm):
    async def breaks_off(scope, receive, send):
        if scope["path"] == "/pause":
            raise ConnectionError
        await vllm(scope, receive, send)

    app = PolicyVersionHeader(breaks_off)
    with pytest.raises(ConnectionError):
        await call(app, "/pause", query=b"mode=wait")
    assert (await asyncio.wait_for(call(app, "/v1/completions"), 30))[0] == 200


async def test_a_streamed_reply_tells_at_its_end_that_new_weights_came():
    begun, gate, sent = asyncio.Event(), asyncio.Event(), []

    async def streaming(scope, receive, send):
        if scope["path"] != "/v1/completions":
            return await Vllm()(scope, receive, send)
        headers = [(b"content-type", b"text/event-stream; charset=utf-8")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"data: 1\n\n", "more_body": True})
        begun.set()
        await gate.wait()
        await send({"type": "http.response.body", "body": b""})

    async def send(message):
        sent.append(message)

    app = PolicyVersionHeader(streaming)
    scope = {"type": "http", "path": "/v1/completions"}
    under_way = asyncio.create_task(app(scope, None, send))
    await begun.wait()
    await call(app, "/update_weight_version", new_version("7"))
    gate.set()
    await under_way
    start, *parts = sent
    assert dict(start["headers"])[b"x-policy-version"] == b"0"
    assert b"".join(part["body"] for part in parts) == b"data: 1\n\n: x-policy-version-until 7\n\n"
    sent.clear()
    await app(scope, None, send)
    assert b"until" not in b"".join(part["body"] for part in sent[1:])
