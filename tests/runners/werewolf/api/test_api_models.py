"""Models behind an API, through the real AgentScope and openai packages, against a fake endpoint."""

import asyncio
import gzip
import json
import logging

import pytest
from aiohttp import web

from runners.errors import EndpointUnavailable, MissingApiKey
from runners.keys import ApiKeys
from runners.werewolf.api.models import ApiModel, ApiModels
from runners.werewolf.api.throttle import Throttle
from store.schema import ChatEndpoint
from tests.support.werewolf.fakes_api import BROKEN_JSON, HTML, NO_CHOICES, FakeChatApi, drop, error, hang, text

SECRET = "sk-test-secret-4711"
QUESTION = [{"role": "system", "content": "你在玩狼人杀。"}, {"role": "user", "content": "轮到你发言。"}]


class Pauses(list):
    """Takes the place of sleeping and remembers how long it should have been."""

    async def __call__(self, seconds):
        self.append(seconds)


async def ask(endpoint, messages=QUESTION, pauses=None, **kwargs):
    model = ApiModel(endpoint, sleep=Pauses() if pauses is None else pauses, **kwargs)
    try:
        return await model.ask(messages)
    finally:
        await model.close()


async def refusal(endpoint, **kwargs):
    with pytest.raises(EndpointUnavailable) as caught:
        await ask(endpoint, **kwargs)
    return str(caught.value)


async def test_a_conversation_goes_out_and_the_reply_comes_back(chat_api):
    chat_api.answer = lambda messages: f"{len(messages)}条"
    assert await ask(chat_api.endpoint(temperature=0.3, max_tokens=77)) == "2条"
    (sent,) = chat_api.requests
    assert [message["content"] for message in sent["messages"]] == [message["content"] for message in QUESTION]
    assert (sent["model"], sent["temperature"], sent["max_tokens"]) == ("fake-model", 0.3, 77)
    assert not sent.get("stream") and "enable_thinking" not in sent


async def test_dashscope_is_called_at_its_own_address_and_does_not_think(chat_api):
    model = ApiModel(ChatEndpoint(provider="dashscope", model="qwen-plus"))
    assert str(model._model.client.base_url) == "https://dashscope.aliyuncs.com/compatible-mode/v1/"
    assert await ask(chat_api.endpoint(provider="dashscope")) == "好的"
    assert chat_api.requests[0]["enable_thinking"] is False
    await model.close()


async def test_a_redirect_is_not_followed(chat_api):
    async with FakeChatApi() as elsewhere:
        chat_api.faults = [error(307, location=f"{elsewhere.url}/v1/chat/completions")]
        assert "HTTP 307" in await refusal(chat_api.endpoint())
    assert elsewhere.requests == []


@pytest.mark.parametrize(
    ("reply", "heard"),
    [
        ("<think>\n我是狼\n</think>\n\n我是好人。", "我是好人。"),
        ("我" * 50_000, "我" * 50_000),
        ([{"type": "text", "text": "我是"}, {"type": "text", "text": "好人。"}], "我是好人。"),
        ("我" * 3_000_000, "我" * 100_000),
    ],
)
async def test_thoughts_are_kept_apart_and_long_replies_arrive(chat_api, reply, heard):
    chat_api.answer = lambda messages: reply
    assert await ask(chat_api.endpoint()) == heard


@pytest.mark.parametrize(
    ("status", "kind"),
    [(200, "application/json"), (200, "multipart/mixed; boundary=x"), (400, "text/plain")],
)
async def test_no_more_is_read_of_an_answer_than_one_can_need(chat_api, status, kind):
    written = 0

    async def endless(fake, request):
        nonlocal written
        response = web.StreamResponse(status=status, headers={"Content-Type": kind})
        await response.prepare(request)
        while written < 2**28:
            await response.write(b"--x\r\n\r\n" if written == 0 else b" " * 2**20)
            written += 2**20
        return response

    chat_api.faults = [endless]
    async with asyncio.timeout(30):
        assert "longer than 32 MiB" in await refusal(chat_api.endpoint(tries=1))
    assert written < 2**27  # what the sockets hold


@pytest.mark.parametrize("status", [200, 400])
async def test_a_small_answer_does_not_become_a_large_one(chat_api, status):
    async def bomb(fake, request):
        assert "gzip" not in request.headers.get("Accept-Encoding", "")
        body = gzip.compress(json.dumps({"message": " " * 2**20}).encode())
        headers = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
        return web.Response(status=status, body=body, headers=headers)

    chat_api.faults = [bomb]
    assert "its answer is invalid" in await refusal(chat_api.endpoint(tries=1))


async def test_thoughts_that_come_in_a_field_of_their_own_are_kept_apart(chat_api):
    message = {"role": "assistant", "content": "我是好人。", "reasoning_content": "我是狼"}
    body = {"id": "f", "object": "chat.completion", "created": 0, "model": "m"}
    chat_api.faults = [
        text(json.dumps({**body, "choices": [{"index": 0, "finish_reason": "stop", "message": message}]}))
    ]
    assert await ask(chat_api.endpoint()) == "我是好人。"
    cut = {**message, "content": None}
    chat_api.faults = [text(json.dumps({**body, "choices": [{"index": 0, "finish_reason": "length", "message": cut}]}))]
    assert await ask(chat_api.endpoint()) == "" and len(chat_api.requests) == 2


@pytest.mark.parametrize(
    "fault",
    [error(500), error(408), error(429), drop, BROKEN_JSON, NO_CHOICES, HTML, text("[]"), text("null")],
    ids=["500", "408", "429", "dropped", "broken json", "no choices", "html", "a list", "null"],
)
async def test_temporary_errors_are_retried_up_to_the_limit(chat_api, fault):
    pauses = Pauses()
    chat_api.faults = [fault, fault]
    assert await ask(chat_api.endpoint(tries=3), pauses=pauses) == "好的"
    assert len(chat_api.requests) == 3
    first, second = pauses
    assert 1 <= first <= 2 and 2 <= second <= 3  # twice as long each time, and up to a second of jitter
    chat_api.requests.clear()
    chat_api.faults = [fault] * 10
    told = await refusal(chat_api.endpoint(tries=3))
    assert len(chat_api.requests) == 3 and "in 3 tries" in told
    assert "'fake-model'" in told and chat_api.url in told


@pytest.mark.parametrize("status", [400, 401, 404])
async def test_a_refused_request_is_not_sent_again(chat_api, status):
    chat_api.faults = [error(status, "data_inspection_failed")] * 3
    told = await refusal(chat_api.endpoint())
    assert (
        len(chat_api.requests) == 1 and "in 1 try" in told and str(status) in told and "data_inspection_failed" in told
    )


async def test_a_server_says_how_long_to_wait(chat_api):
    pauses = Pauses()
    chat_api.faults = [error(429, Retry_After="17"), error(429, Retry_After="soon")]
    throttle = Throttle(sleep=Pauses(), clock=iter(range(0, 10_000, 100)).__next__)
    assert await ask(chat_api.endpoint(tries=4), pauses=pauses, throttle=throttle) == "好的"
    assert pauses[0] == 17 and pauses[1] < 6
    chat_api.faults = [error(429, Retry_After="3600")]
    told = await refusal(chat_api.endpoint(tries=4))
    assert "a pause of 3600 s" in told and "in 1 try" in told


async def test_a_pause_that_a_server_asks_for_holds_for_all_who_call_it(chat_api):
    now, slept = 1000.0, []

    async def sleep(seconds):
        nonlocal now
        slept.append(seconds)
        now += seconds

    throttle = Throttle(clock=lambda: now, sleep=sleep)
    chat_api.faults = [error(429, Retry_After="17")]
    await refusal(chat_api.endpoint(tries=1), throttle=throttle)
    assert slept == []
    assert await ask(chat_api.endpoint(), throttle=throttle) == "好的"
    assert slept == [17]


async def test_an_answer_that_takes_too_long_is_given_up(chat_api):
    chat_api.faults = [hang, hang]
    told = await refusal(chat_api.endpoint(timeout_seconds=0.2, tries=2))
    assert len(chat_api.requests) == 2 and "no answer within 0.2 s" in told


async def test_keys_come_from_the_environment_and_show_nowhere(chat_api, monkeypatch, caplog):
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("TEST_API_KEY", SECRET)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-another")
    chat_api.key = SECRET
    endpoint = chat_api.endpoint(api_key_env="TEST_API_KEY", tries=2)
    keys = ApiKeys([f"TEST_API_KEY={endpoint.endpoint}"])
    assert await ask(endpoint, keys=keys) == "好的"
    chat_api.key = "another"  # the fake tells which key it was shown, as some servers do
    models = ApiModels(keys)
    model = models.get(endpoint)
    with pytest.raises(EndpointUnavailable) as caught:
        await model.ask(QUESTION)
    chat_api.faults, chat_api.key = [HTML] * 2, None
    model._sleep = Pauses()
    with pytest.raises(EndpointUnavailable) as unreadable:
        await model.ask(QUESTION)
    await models.close()
    for shown in (caught.value, unreadable.value):
        assert shown.__cause__ is None and shown.__context__ is None
        assert SECRET not in f"{shown!r} {shown}"
    assert "401" in str(caught.value) and "***" in str(caught.value)
    assert SECRET not in f"{model!r} {endpoint!r} {endpoint.model_dump_json()}"
    # The openai package's debug log leaves the Authorization header out by itself.
    assert SECRET not in caplog.text and caplog.text


async def test_an_endpoint_without_a_key_is_sent_none_of_ours(chat_api, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    await ask(chat_api.endpoint())
    assert SECRET not in str(chat_api.headers)


@pytest.mark.parametrize("value", ["", "  ", "sk-\nx", "密钥"])
def test_a_missing_or_impossible_key_is_named_by_its_variable(monkeypatch, value):
    endpoint = ChatEndpoint(endpoint="https://example.invalid/v1", model="big", api_key_env="TEST_API_KEY")
    monkeypatch.delenv("TEST_API_KEY", raising=False)
    keys = ApiKeys(["TEST_API_KEY=https://example.invalid"])
    with pytest.raises(MissingApiKey, match=r"TEST_API_KEY.*https://example\.invalid.*not set"):
        ApiModel(endpoint, keys=keys)
    monkeypatch.setenv("TEST_API_KEY", value)
    with pytest.raises(MissingApiKey, match="TEST_API_KEY") as caught:
        ApiModel(endpoint, keys=keys)
    assert not value.strip() or value not in str(caught.value)


async def test_a_proxy_does_not_come_before_this_machine(chat_api, monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    assert await ask(chat_api.endpoint()) == "好的"
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, chat_api.url)
    elsewhere = ChatEndpoint(endpoint="http://example.invalid/v1", model="m", tries=1)
    assert await ask(elsewhere) == "好的" and chat_api.headers[-1]["Host"] == "example.invalid"


async def test_calls_under_way_are_limited_over_all_users_of_an_endpoint(chat_api):
    chat_api.hold.clear()
    models = ApiModels()
    warm, cold = (models.get(chat_api.endpoint(temperature=temperature, max_concurrent=3)) for temperature in (1, 0))
    assert warm is not cold and models.get(chat_api.endpoint(temperature=1, max_concurrent=3)) is warm
    asking = [asyncio.create_task(model.ask(QUESTION)) for model in (warm, cold) for _ in range(6)]
    while chat_api.running < 3:
        await asyncio.sleep(0)
    chat_api.hold.set()
    assert await asyncio.gather(*asking) == ["好的"] * 12
    assert chat_api.most_at_once == 3
    await models.close()


async def test_calls_begin_in_order_within_the_rate_limit():
    now, begun = 0.0, []

    async def sleep(seconds):
        nonlocal now
        await asyncio.sleep(0)
        now += seconds

    throttle = Throttle(clock=lambda: now, sleep=sleep)

    async def call(number):
        async with throttle.slot(2, spacing_seconds=5.0):
            begun.append((number, now))

    await asyncio.gather(*map(call, range(4)))
    assert begun == [(0, 0), (1, 5), (2, 10), (3, 15)]


async def test_requests_per_minute_count_every_try(chat_api):
    waited, clock = Pauses(), iter(range(100))
    throttle = Throttle(clock=lambda: 60.0 + next(clock) if waited else 0.0, sleep=waited)
    chat_api.faults = [error(500)]
    await ask(chat_api.endpoint(requests_per_minute=2), throttle=throttle)
    assert waited == [30]


async def test_a_call_that_is_cancelled_gives_its_place_back(chat_api):
    chat_api.hold.clear()
    model = ApiModel(chat_api.endpoint(max_concurrent=1))
    first, second = (asyncio.create_task(model.ask(QUESTION)) for _ in range(2))
    await chat_api.asked.wait()
    first.cancel()
    chat_api.hold.set()
    assert await second == "好的" and first.cancelled()
    await model.close()
