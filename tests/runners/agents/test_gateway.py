"""The gateway as agents meet it, through the real openai package, before a fake of vLLM."""

import asyncio
import json
import logging

import httpx
import pytest
from aiohttp import ClientConnectionResetError
from openai import APIError, APIStatusError, BadRequestError, NotFoundError

from runners.agents.gateway import address, requests
from runners.agents.gateway.chat_server import ChatServer
from runners.errors import PolicyUnavailable
from runners.uploads import SpansRejected
from tests.support.agents.fakes_agents import CALL, QUESTION, client_of, request_of
from tests.support.agents.streams import assemble
from tests.support.agents.tool_model import TOOL
from tests.support.waiting import until


async def ask(client, messages=QUESTION, **options):
    return await client.chat.completions.create(model="policy", messages=messages, **options)


async def test_a_call_is_answered_and_written_down_in_tokens(world, openai):
    world.vllm.answer, world.vllm.policy_version = lambda prompt: "<think>hm</think>fine", 7
    answer = await ask(openai)
    (request, choice), (span,) = world.vllm.exchanges[-1], world.spans
    assert answer.choices[0].message.reasoning == span.thought == "hm"
    assert answer.choices[0].message.content == span.reply == "fine"
    assert answer.choices[0].finish_reason == span.finish_reason == "stop"
    assert answer.usage.prompt_tokens == len(span.prompt_ids)
    assert request["prompt"] == list(span.prompt_ids)
    assert choice["token_ids"] == list(span.response_ids)
    assert choice["logprobs"]["token_logprobs"] == pytest.approx(span.logprobs)
    assert (span.actor, span.turn, span.segment, span.policy, span.policy_version) == ("agent", 0, 0, "policy", 7)
    assert span.trainable and span.valid


@pytest.mark.parametrize("status", [400, 500])
async def test_a_reply_that_the_server_cannot_parse_is_text_and_the_agents_call_is_recorded(world, openai, status):
    world.vllm.unparsable, world.vllm.answer = "bad", lambda prompt: "bad"
    world.vllm.unparsable_status = status  # 500: a parser that raises an error
    answer = await ask(openai)
    assert answer.choices[0].message.content == "bad" and [span.reply for span in world.spans] == ["bad"]


async def test_what_is_sampled_follows_the_run_and_not_the_agent(world, attempt, openai, caplog):
    requests._logged.clear()
    strict = {**TOOL, "function": {**TOOL["function"], "strict": True}}
    asked = {
        "temperature": 0.1,
        "top_p": 0.5,
        "n": 2,
        "logit_bias": {"5": 1},
        "presence_penalty": 1.0,
        "frequency_penalty": 0.0,
        "response_format": {"type": "json_object"},
        "tools": [strict],
        "tool_choice": "required",
        "parallel_tool_calls": True,
        "user": "me",
        "seed": 4,
        "modalities": ["text"],
        "functions": [],
    }
    with caplog.at_level(logging.WARNING):
        answer = await ask(openai, **asked)
        await ask(openai, **asked)
    (request, _) = world.vllm.exchanges[-1]
    assert (request["temperature"], request["top_p"]) == (1.0, 1.0)
    assert not {"n", "logit_bias", "presence_penalty", "response_format", "tool_choice"} & set(request)
    assert len(answer.choices) == 1
    names = ["temperature", "top_p", "n", "logit_bias", "presence_penalty", "response_format", "strict"]
    assert attempt.outcome({"reward": 1.0}).dropped == dict.fromkeys([*names, "tool_choice", "seed"], 2)
    told = [record.getMessage() for record in caplog.records if "ignoring" in record.getMessage()]
    assert len(told) == len(names) + 2


@pytest.mark.parametrize(("reply", "role"), [("天", "user"), (CALL, "tool")])
async def test_a_reply_that_was_cut_gets_its_end_before_what_follows(world, openai, reply, role):
    world.vllm.answer = lambda prompt: reply * 2
    length = len(world.vllm.tokenizer.encode(reply))
    answer = await ask(openai, max_tokens=length, tools=[TOOL])
    following = {"role": role, "content": "more", "tool_call_id": "1"}
    await ask(openai, [*QUESTION, answer.choices[0].message, following], tools=[TOOL])
    assert answer.choices[0].finish_reason == "length"
    first, second = world.spans
    end = world.vllm.tokenizer.eos_token_id
    assert (first.facts["cut"], first.response_ids.count(end)) == (1.0, 0)
    assert (second.segment, second.prompt_ids.index(end)) == (0, 0)
    assert second.prompt_ids.count(end) == 2  # of the reply's turn, and of the question's


@pytest.mark.parametrize("stop", [[], ["Human:"]])
async def test_another_end_token_of_the_models_is_not_text_of_a_reply(world, openai, stop):
    world.vllm.ends = (world.vllm.tokenizer.pad_token_id,)
    assert (await ask(openai, stop=stop)).choices[0].message.content == "fine"
    world.vllm.answer = lambda prompt: "fine\nHuman:"
    assert (await ask(openai, stop=stop)).choices[0].message.content == "fine\n" + "Human:" * (not stop)


async def test_beyond_the_context_or_the_number_of_calls_comes_the_error_that_agents_know(world):
    attempt = world.attempt(limits={"context_tokens": 60, "reply_tokens": 20}, max_calls=3)
    async with world.gateway.serving(attempt) as address, client_of(address) as client:
        await ask(client)
        with pytest.raises(BadRequestError) as refused:
            await ask(client, [{"role": "user", "content": "天" * 80}])
        assert refused.value.code == "context_length_exceeded"
        assert "maximum context length is 60 tokens" in str(refused.value)
        with pytest.raises(BadRequestError, match="maximum context length"):
            await ask(client, [{"role": "user", "content": "天" * 30}], max_tokens=20)
        with pytest.raises(APIStatusError) as refused:
            await ask(client)
        assert (refused.value.status_code, refused.value.code) == (429, "too_many_calls")
    assert len(world.spans) == 1
    assert attempt.outcome({"reward": 0.0}).refused == 3


async def test_a_reply_gets_what_is_asked_for_but_no_more_than_the_limit(world):
    attempt = world.attempt(limits={"context_tokens": 60, "reply_tokens": 20})
    async with world.gateway.serving(attempt) as address, client_of(address) as client:
        for asked in (5, 1000, None):
            await ask(client, max_completion_tokens=asked)
        await ask(client, [{"role": "user", "content": "天" * 40}])
    *wanted, squeezed = [request["max_tokens"] for request, _ in world.vllm.exchanges]
    assert wanted == [5, 20, 20]
    assert squeezed == 60 - len(world.spans[-1].prompt_ids) < 20


async def test_what_vllm_refuses_to_render_is_the_agents_to_know(world, openai):
    await ask(openai)
    world.vllm.refuse_render = "arguments are no JSON"
    with pytest.raises(BadRequestError, match="arguments are no JSON"):
        await ask(openai, [{"role": "user", "content": "another"}])


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"messages": []}, "at least one item"),
        ({"messages": [{"role": "wizard", "content": "hi"}]}, "role"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]}, "'image_url'"),
        ({"messages": [{"role": "assistant", "tool_calls": [{"id": "1"}]}]}, "without a function"),
        ({"messages": QUESTION, "tools": [{"type": "web_search"}]}, "'web_search'"),
        ({"messages": QUESTION, "model": "gpt-5"}, "unknown model 'gpt-5'"),
        ({"messages": QUESTION, "model": "policy/\ud83d"}, "printable"),
        ({"messages": QUESTION, "stop": [""]}, "none empty"),
        ({"messages": QUESTION, "stop": 5}, "wrong type"),
        ({"messages": QUESTION, "tools": 5}, "wrong type"),
        ({"messages": QUESTION, "stream": True, "stream_options": [1]}, "wrong type"),
        ({"messages": QUESTION, "functions": [TOOL["function"]]}, "functions is not supported: use tools"),
        ({"messages": QUESTION, "function_call": {"name": "calculate"}}, "use tool_choice"),
        ({"messages": QUESTION, "modalities": ["text", "audio"]}, "modalities is not supported: use text alone"),
        ({"messages": QUESTION, "max_tokens": True}, "must be an integer"),
        pytest.param("[" * 100_000, "recursion", id="deep"),
        (b"{}", "unknown encoding"),
    ],
)
async def test_the_error_of_a_malformed_request_names_the_problem(world, body, message):
    async with world.gateway.serving(world.attempt()) as address, httpx.AsyncClient(trust_env=False) as http:
        if isinstance(body, dict):
            body = json.dumps({"model": "policy", **body})
        headers = {"Content-Type": "application/json; charset=klingon"} if isinstance(body, bytes) else {}
        answer = await http.post(f"{address}/chat/completions", content=body, headers=headers)
    assert answer.status_code in (400, 404)
    assert message in answer.json()["error"]["message"]


async def test_after_its_end_an_attempt_answers_gone_and_an_unknown_one_not_found(world):
    async with world.gateway.serving(world.attempt()) as address, client_of(address) as client:
        await ask(client)
    async with client_of(address) as client:
        with pytest.raises(APIStatusError) as ended:
            await ask(client)
        assert ended.value.status_code == 410
    async with client_of(f"{world.gateway.address}/rollout/x/attempt/y/v1") as client:
        with pytest.raises(NotFoundError, match="unknown attempt 'x/y'"):
            await ask(client)
    assert len(world.spans) == 1


async def test_a_call_under_way_at_the_end_is_broken_off_and_leaves_no_span(world):
    attempt = world.attempt()
    async with world.gateway.serving(attempt) as address:
        client = client_of(address)
        await ask(client)
        world.vllm.gate.clear()
        world.vllm.asked.clear()
        late = asyncio.create_task(ask(client))
        await world.vllm.asked.wait()
    with pytest.raises(APIStatusError) as ended:
        await late
    assert ended.value.status_code == 410
    assert len(world.spans) == 1
    await client.close()


async def test_a_reply_that_comes_as_its_attempt_ends_leaves_no_span(world, monkeypatch):
    attempt, reply = world.attempt(), ChatServer.reply

    async def reply_at_the_end(*args):
        found = await reply(*args)
        attempt.end()
        return found

    monkeypatch.setattr(ChatServer, "reply", reply_at_the_end)
    async with world.gateway.serving(attempt) as address, client_of(address) as client:
        with pytest.raises(APIStatusError) as ended:
            await ask(client)
    assert ended.value.status_code == 410 and not world.spans


async def test_a_call_that_the_agent_gives_up_is_broken_off_and_leaves_no_span(world, openai):
    await ask(openai)
    world.vllm.gate.clear()
    world.vllm.asked.clear()
    given_up = asyncio.create_task(ask(openai, [*QUESTION, {"role": "user", "content": "more"}]))
    await world.vllm.asked.wait()
    given_up.cancel()
    await asyncio.gather(given_up, return_exceptions=True)
    world.vllm.gate.set()
    await ask(openai)
    assert [span.reply for span in world.spans] == ["fine", "fine"]


@pytest.mark.parametrize("fails", [None, "models", "render", "completions"])
async def test_an_agent_that_gives_up_while_the_server_fails_is_not_to_blame(world, attempt, fails):
    """Its own timeout is shorter than an outage: the attempt is retried."""
    world.servers._retry_seconds = 60.0
    async with world.gateway.serving(attempt) as address, client_of(address) as client:
        if fails != "models":
            await ask(client)
            server = (await attempt._server("agent", "policy")).server
        has_begun = {
            None: world.vllm.asked.is_set,
            "models": lambda: world.vllm.signs_of_life > 1,
            "render": lambda: server.retrying,
            "completions": lambda: server.retrying,
        }
        world.vllm.asked.clear()
        world.vllm.healthy = fails != "models"
        world.vllm.refuse_render, world.vllm.render_status = "down" if fails == "render" else None, 503
        world.vllm.fail_next = 1000 * (fails == "completions")
        if not fails:
            world.vllm.gate.clear()
        given_up = asyncio.create_task(ask(client, [*QUESTION, {"role": "user", "content": "more"}]))
        await until(has_begun[fails])
        given_up.cancel()
        await asyncio.gather(given_up, return_exceptions=True)
        await until(lambda: attempt.failed_event.is_set() or not attempt._open_calls)
        assert isinstance(attempt.fatal_error, PolicyUnavailable) == bool(fails)


@pytest.mark.parametrize(("status", "parts"), [(400, True), (500, True), (400, False), (500, False)])
async def test_a_streamed_reply_that_the_server_cannot_parse_is_text(world, openai, status, parts):
    world.vllm.answer = lambda prompt: "one two three four five six seven"
    world.vllm.unparsable, world.vllm.unparsable_status = "seven" if parts else "one", status
    said = "".join([chunk.choices[0].delta.content or "" async for chunk in await ask(openai, stream=True)])
    assert said == "one two three four five six seven" == world.spans[0].reply


@pytest.mark.parametrize("parses_parts", [True, False])
async def test_a_server_without_a_parser_of_tool_calls_is_named_with_the_remedy(world, attempt, openai, parses_parts):
    world.vllm.parses_parts = parses_parts
    world.vllm.answer = lambda prompt: "one two three"
    world.vllm.unparsable, world.vllm.unparsable_reason = "one two three", "start vLLM with --tool-call-parser"
    with pytest.raises(APIError, match="policy is unavailable"):
        async for _ in await ask(openai, stream=True):
            pass
    assert "set serving.tool_parser" in str(attempt.fatal_error) and not world.spans


async def test_a_stream_that_the_agent_leaves_ends_its_call_alone(world, attempt):
    async def write(block, text):
        raise ClientConnectionResetError("Cannot write to closing transport")

    with pytest.raises(ClientConnectionResetError):
        await attempt.call(request_of(QUESTION), write)
    assert attempt.fatal_error is None and not world.spans
    await attempt.call(request_of(QUESTION))
    assert [span.reply for span in world.spans] == ["fine"]


async def test_the_header_names_attempt_and_actor_where_the_address_does_not(world):
    attempt = world.attempt()
    headers = {"x-trace-id": "/".join(attempt.key), "x-actor": "planner"}
    client = client_of(f"{world.gateway.address}/v1", default_headers=headers)
    async with world.gateway.serving(attempt), client:
        await ask(client)
        models = [model.id async for model in await client.models.list()]
    assert [span.actor for span in world.spans] == ["planner"]
    assert models == ["policy", "past"]


async def test_only_actors_of_the_trained_policy_are_trained(world):
    attempt = world.attempt(trainable=["planner"])
    async with world.gateway.serving(attempt) as address, client_of(address) as client:
        for model in ("policy/planner", "policy/worker", "past"):
            await client.chat.completions.create(model=model, messages=QUESTION)
    assert [(span.actor, span.policy, span.trainable, span.policy_version) for span in world.spans] == [
        ("planner", "policy", True, 3),
        ("worker", "policy", False, 3),
        ("past", "past", False, 0),
    ]
    assert [actor.name for actor in attempt.outcome({"reward": 1.0}).actors] == ["past", "planner", "worker"]


async def test_arguments_may_come_as_an_object(world, openai):
    call = {"id": "1", "type": "function", "function": {"name": "calculate", "arguments": {"expression": "1+2"}}}
    await ask(openai, [*QUESTION, {"role": "assistant", "tool_calls": [call]}], tools=[TOOL])
    assert CALL in world.vllm.tokenizer.decode(world.spans[0].prompt_ids)


async def test_a_hub_that_forgot_the_attempt_ends_it(attempt, openai):
    def forget(*_):
        raise SpansRejected("gone")

    attempt._on_turn = forget
    with pytest.raises(APIStatusError) as refused:
        await ask(openai)
    assert refused.value.status_code == 503
    assert isinstance(attempt.fatal_error, SpansRejected) and attempt.failed_event.is_set()


async def test_the_transcript_tells_a_conversation_once(attempt, openai):
    message = (await ask(openai)).choices[0].message.model_dump()
    await ask(openai, [*QUESTION, message, {"role": "user", "content": "more"}])
    assert attempt.outcome({"reward": 1.0}).transcript.splitlines() == [
        "== agent, conversation 1",
        "user: hi",
        "assistant: fine",
        "user: more",
        "assistant: fine",
    ]


@pytest.mark.parametrize("path", ["embeddings", "completions", "messages/count_tokens"])
async def test_what_is_not_there_is_refused_in_openais_form_counted_and_logged_once(world, caplog, path):
    requests._logged.clear()
    attempt = world.attempt()
    with caplog.at_level(logging.WARNING):
        async with world.gateway.serving(attempt) as address, httpx.AsyncClient() as http:
            for _ in range(2):
                answer = await http.post(f"{address}/{path}", json={"model": "policy"})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["type"]) == (404, "unknown_url", "invalid_request_error")
    assert f"unknown route POST /v1/{path}" in error["message"] and "/v1/chat/completions" in error["message"]
    assert attempt.outcome({"reward": 0.0}).refused == 2
    (told,) = [record.getMessage() for record in caplog.records if "rejected" in record.getMessage()]
    assert f"POST /v1/{path}" in told


async def test_a_request_that_is_too_large_is_refused_and_not_read(world, monkeypatch):
    monkeypatch.setattr(address, "_LONGEST_REQUEST_BYTES", 1000)
    gateway, attempt = address.Gateway(), world.attempt()
    await gateway.start()
    async with gateway.serving(attempt) as base_url, client_of(base_url) as client:
        await ask(client)
        with pytest.raises(APIStatusError) as refused:
            await ask(client, [{"role": "user", "content": "a" * 2000}])
    await gateway.close()
    assert (refused.value.status_code, attempt.refused, len(world.spans)) == (413, 1, 1)


async def test_a_stream_comes_while_the_reply_is_sampled(world, openai):
    world.vllm.answer = lambda prompt: "one two three four five six seven"
    world.vllm.parts_gate.clear()
    said = ""
    async for chunk in await ask(openai, stream=True):
        said += chunk.choices[0].delta.content or ""
        if said and not world.vllm.parts_gate.is_set():
            assert not world.spans
            world.vllm.parts_gate.set()
    history = [*QUESTION, {"role": "assistant", "content": said}, {"role": "user", "content": "and"}]
    await ask(openai, history)
    assert said == "one two three four five six seven" == world.spans[0].reply
    assert [span.segment for span in world.spans] == [0, 0]


@pytest.mark.parametrize("cut", [True, False])
async def test_a_stream_that_ends_in_the_midst_of_a_call_or_a_character_loses_nothing(world, cut, openai):
    world.vllm.answer = lambda prompt: "天地" + CALL
    options = {"max_tokens": 5} if cut else {}
    answer = await ask(openai, tools=[TOOL], **options)
    chunks = [chunk async for chunk in await ask(openai, tools=[TOOL], stream=True, **options)]
    said = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert said == (answer.choices[0].message.content or "") and said
    assert chunks[-1].choices[0].finish_reason == answer.choices[0].finish_reason


async def test_a_stream_that_breaks_off_is_an_error_and_ends_the_attempt(world, attempt, openai):
    world.vllm.answer = lambda prompt: "one two three four five six seven"
    world.vllm.break_streams = True
    with pytest.raises(APIError, match="policy is unavailable"):
        async for _ in await ask(openai, stream=True):
            pass
    assert isinstance(attempt.fatal_error, PolicyUnavailable) and not world.spans


async def test_a_server_that_parses_whole_replies_only_is_streamed_from_all_the_same(world, openai):
    world.vllm.answer = lambda prompt: f"well\n{CALL}\n{CALL}"
    world.vllm.parses_parts = False
    for _ in range(2):
        chunks = await ask(openai, tools=[TOOL], stream=True, stream_options={"include_usage": True})
        message, finish, usage = await assemble(chunks)
        assert finish == "tool_calls" and usage.total_tokens > usage.completion_tokens > 0
        assert message["content"] == "well\n" and len(message["tool_calls"]) == 2
