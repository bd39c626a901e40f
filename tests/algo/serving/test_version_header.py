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


@pytest.fixture
def vllm(monkeypatch):
    monkeypatch.delenv(INITIAL_VERSION, raising=False)
    return Vllm()


async def call(app, path, body=b"{}"):
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

    await app({"type": "http", "path": path}, receive, send)
    return sent[0]["status"], dict(sent[0]["headers"]), sent[1]["body"]


def new_version(version):
    return json.dumps({"new_version": version}).encode()


async def test_completions_tell_the_version_that_was_set_last(vllm):
    app = PolicyVersionHeader(vllm)
    status, headers, body = await call(app, "/v1/completions", b'{"prompt": [1]}')
    assert (status, body) == (200, b'{"prompt": [1]}')
    assert headers == {b"a": b"b", b"x-policy-version": b"0"}
    for version in ("7", "12"):
        status, headers, _ = await call(app, "/update_weight_version", new_version(version))
        assert status == 200 and headers == {b"a": b"b"} and vllm.body == new_version(version)
        assert (await call(app, "/v1/completions"))[1][b"x-policy-version"] == version.encode()


async def test_a_version_that_vllm_refuses_is_not_told(vllm):
    app = PolicyVersionHeader(vllm)
    vllm.status = 422
    assert (await call(app, "/update_weight_version", b'{"new": 1}'))[0] == 422
    vllm.status = 200
    assert (await call(app, "/v1/completions"))[1][b"x-policy-version"] == b"0"


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
