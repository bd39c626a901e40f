"""Requests to a policy server that is away, slow or invalid, or requires a key."""

import asyncio
import gzip
import json

import pytest
from aiohttp import web

from runners.errors import PolicyUnavailable, RouteRefused
from runners.policy import client
from runners.policy.client import PolicyClient
from tests.support.tasks import HERE
from tests.support.waiting import until


@pytest.fixture
async def connect():
    opened = []

    def connect(endpoint, model="policy", patience=0.0, **options):
        opened.append(PolicyClient(endpoint, model, 1.0, HERE, patience, **options))
        return opened[-1]

    yield connect
    for server in opened:
        await server.close()


async def test_no_more_is_read_of_an_answer_than_one_can_need(http_service, connect, monkeypatch):
    monkeypatch.setattr(client, "MAX_ANSWER_BYTES", 2**20)
    written = 0

    async def endless(request):
        nonlocal written
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b" " * 2**16)
            written += 2**16

    http_service.answer = endless
    async with asyncio.timeout(30):
        with pytest.raises(RouteRefused) as refused:
            await connect(http_service.url).ask("/v1/completions", {})
    assert "longer than 1 MiB" in refused.value.detail
    assert len(http_service.asked) == 1 and written < 2**26  # what the sockets hold


async def test_a_small_answer_does_not_become_a_large_one(http_service, connect):
    async def bomb(request):
        assert "gzip" not in request.headers.get("Accept-Encoding", "")
        return web.Response(body=gzip.compress(b"[" + b" " * 2**26 + b"]"), headers={"Content-Encoding": "gzip"})

    http_service.answer = bomb
    with pytest.raises(RouteRefused, match="invalid JSON"):
        await connect(http_service.url).ask("/v1/completions", {})


@pytest.mark.parametrize("status", [200, 500])
async def test_deep_nesting_is_no_answer_and_no_crash(http_service, connect, status):
    http_service.answer = lambda request: web.Response(text="[" * 100_000, status=status)
    with pytest.raises((RouteRefused, PolicyUnavailable), match=r"invalid JSON|500: \[\["):
        await connect(http_service.url).ask("/v1/completions", {})


async def test_a_redirect_is_refused(http_service, connect):
    http_service.answer = lambda request: web.Response(status=307, headers={"Location": "/v1/agl/health"})
    with pytest.raises(RouteRefused, match="307"):
        await connect(http_service.url).ask("/v1/completions", {})
    assert http_service.asked == ["/v1/completions"]


async def test_a_server_that_is_away_for_a_moment_is_asked_again_and_one_that_stays_away_is_named(
    http_service, connect
):
    def failing_twice(request):
        return web.json_response({"error": {"message": "starting"}}, status=503 if len(http_service.asked) < 3 else 200)

    http_service.answer = failing_twice
    assert await connect(http_service.url, patience=60).ask("/v1/x", {}) and len(http_service.asked) == 3
    http_service.asked.clear()
    with pytest.raises(PolicyUnavailable, match=r"no answer from .*503: starting.*Is vLLM running"):
        await connect(http_service.url).ask("/v1/x", {})
    assert len(http_service.asked) == 1


async def test_a_slow_answer_is_waited_for_as_long_as_the_server_lives(vllm, connect):
    server = connect(vllm.endpoint, liveness_interval_seconds=0.05)
    vllm.gate.clear()
    answering = asyncio.create_task(server.complete([5], 4, seed=1))
    async with asyncio.timeout(60):
        await until(lambda: vllm.signs_of_life >= 3)  # silent for longer than three times the silence
    assert not answering.done()
    vllm.gate.set()
    assert (await answering).token_ids and len(vllm.exchanges) == 1  # and was asked once

    vllm.gate.clear()
    vllm.healthy = False
    with pytest.raises(PolicyUnavailable, match="503"):
        await server.complete([5], 4, seed=1)
    vllm.gate.set()
    vllm.parts_gate.clear()
    vllm.answer, taken = lambda prompt: "好的，我先说", []
    with pytest.raises(PolicyUnavailable, match="broke off during a reply: 503"):
        await connect(vllm.endpoint, patience=60, liveness_interval_seconds=0.05).complete(
            [5], 100, seed=1, on_tokens=taken.extend
        )
    assert len(taken) == 3  # a retry would repeat them


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda choice, headers: choice.pop("token_ids"), "no token ids"),
        (lambda choice, headers: choice["prompt_token_ids"].append(1), "changed the prompt"),
        (lambda choice, headers: choice["token_ids"].append(1), "log-probs"),
        (lambda choice, headers: choice["token_ids"].append("1"), "a token id that is no integer"),
        (lambda choice, headers: choice["logprobs"].update(token_logprobs=[None, -0.2]), "no finite number"),
        (lambda choice, headers: choice.update(finish_reason="abort"), "aborted a reply"),
        (lambda choice, headers: headers.update({"x-policy-version": "seven"}), "'seven', which is not a number"),
    ],
)
async def test_an_answer_that_is_not_token_exact_is_refused(http_service, connect, spoil, message):
    choice = {
        "finish_reason": "stop",
        "token_ids": [7, 8],
        "prompt_token_ids": [5, 6],
        "logprobs": {"token_logprobs": [-0.1, -0.2]},
    }
    headers = {}
    http_service.answer = lambda request: web.json_response({"choices": [choice]}, headers=headers)
    server = connect(http_service.url)
    assert (await server.complete([5, 6], 4, seed=1)).logprobs == (-0.1, -0.2)
    spoil(choice, headers)
    with pytest.raises(PolicyUnavailable, match=message):
        await server.complete([5, 6], 4, seed=1)


async def test_a_models_folder_and_limit_are_what_the_server_names_and_an_adapters_are_its_models(vllm, connect):
    vllm.adapters = {"learned": "/runs/learned/policy/version-000003"}
    for model in ("policy", "learned"):
        server = connect(vllm.endpoint, model)
        assert (await server.model_folder(), await server.context_tokens()) == (vllm.model_folder, vllm.context_tokens)
    with pytest.raises(PolicyUnavailable, match="serves policy, learned, not 'other'"):
        await connect(vllm.endpoint, "other").model_folder()


async def test_a_streamed_reply_is_the_same_as_a_whole_one(vllm, connect):
    vllm.answer = lambda prompt: "好的，我先说"
    vllm.policy_version, vllm.version_until = 3, 4
    server, parts = connect(vllm.endpoint), []
    server.stop_token_ids = (vllm.tokenizer.eos_token_id,)
    for most in (100, 4):
        whole = await server.complete([1, 2, 3], most, seed=1)
        assert await server.complete([1, 2, 3], most, seed=1, on_tokens=parts.append) == whole
        assert [token for part in parts for token in part] == list(whole.token_ids) and len(parts) > 1
        parts.clear()


def streamed(*events, **more):
    return web.Response(text="".join(f"data: {json.dumps(event)}\n\n" for event in events), **more)


TOKEN = {"token_ids": [7], "prompt_token_ids": [5], "finish_reason": "stop", "logprobs": {"token_logprobs": [-0.1]}}


@pytest.mark.parametrize(
    "event", [{"choices": []}, {"error": {"message": "CUDA out of memory"}}, {"choices": [TOKEN]}, {"choices": ["x"]}]
)
async def test_a_stream_may_have_its_usage_at_its_end_but_no_error_and_no_further_token(http_service, connect, event):
    http_service.answer = lambda request: streamed({"choices": [TOKEN]}, event)
    replying = connect(http_service.url).complete([5], 1, seed=1, on_tokens=len)
    if event == {"choices": []}:
        assert (await replying).token_ids == (7,)
    else:
        with pytest.raises(PolicyUnavailable, match=r"an error: CUDA out of memory|more than 1 tokens|no token ids"):
            await replying


async def test_a_proxy_that_writes_header_names_in_capitals_leaves_a_streamed_reply_its_version(http_service, connect):
    version = {client.POLICY_VERSION_HEADER.title(): "7"}
    http_service.answer = lambda request: streamed({"choices": [TOKEN]}, headers=version)
    assert (await connect(http_service.url).complete([5], 1, seed=1, on_tokens=len)).policy_version == 7


async def test_each_call_learns_of_its_own_failed_requests(http_service, connect):
    async def failed(route):
        retried = []
        client.RETRIED.set(retried)
        asking = asyncio.create_task(server.ask(route, {}))  # as the gateway samples
        await asyncio.wait({asking, asyncio.create_task(until(lambda: retried))}, return_when=asyncio.FIRST_COMPLETED)
        asking.cancel()
        return [error.status for error in retried]

    http_service.answer = lambda request: web.json_response({}, status=200 if request.path == "/healthy" else 503)
    server = connect(http_service.url, patience=60.0)
    assert await asyncio.gather(failed("/healthy"), failed("/failing")) == [[], [503]]


async def test_an_answer_that_comes_while_the_server_is_looked_for_is_taken(http_service, connect):
    looked = asyncio.Event()

    async def answer(request):
        if request.path.endswith("/models"):
            looked.set()
            await asyncio.Event().wait()
        await looked.wait()
        return web.json_response({"choices": [TOKEN]})

    http_service.answer = answer
    async with asyncio.timeout(20):
        reply = await connect(http_service.url, liveness_interval_seconds=0.05).complete([5], 1, seed=1)
    assert reply.token_ids == (7,)


async def test_a_streamed_reply_that_breaks_off_is_not_asked_for_again(vllm, connect):
    vllm.answer = lambda prompt: "好的，我先说"
    vllm.break_streams, taken = True, []
    server = connect(vllm.endpoint, patience=60)
    with pytest.raises(PolicyUnavailable, match="broke off during a reply"):
        await server.complete([1, 2, 3], 100, seed=1, on_tokens=taken.extend)
    assert len(taken) == 3 and len(vllm.exchanges) == 1


async def test_a_streamed_reply_is_asked_for_again_until_it_begins(vllm, connect, monkeypatch):
    vllm.fail_next = 1
    monkeypatch.setattr(client, "_FIRST_PAUSE_SECONDS", 0.0)
    server = connect(vllm.endpoint, patience=60)
    assert (await server.complete([1, 2, 3], 100, seed=1, on_tokens=len)).token_ids
