"""Anthropic's Messages, through the real anthropic package."""

import json

import pytest
from anthropic import AsyncAnthropic, BadRequestError, NotFoundError

from tests.support.agents.fakes_agents import CALL, resources_of
from tests.support.agents.tool_model import TOOL

CALCULATE = {"name": "calculate", "description": "Calculates.", "input_schema": TOOL["function"]["parameters"]}
QUESTION = {"role": "user", "content": "What is 1+2?"}
THINKING = {"type": "enabled", "budget_tokens": 1024}


def client_of(address):
    return AsyncAnthropic(base_url=address, api_key="none", max_retries=0)


@pytest.fixture
async def anthropic(world, attempt):
    async with world.gateway.serving(attempt) as address, client_of(address) as client:
        yield client


async def ask(client, messages, **options):
    return await client.messages.create(model="policy", messages=messages, **{"max_tokens": 300, **options})


async def streamed(client, messages, **options):
    async with client.messages.stream(model="policy", messages=messages, max_tokens=300, **options) as stream:
        return await stream.get_final_message()


def results(answer, **more):
    """What tools say to the calls of an answer, as a user's message."""
    return [
        {"type": "tool_result", "tool_use_id": block.id, "content": "3", **more}
        for block in answer.content
        if block.type == "tool_use"
    ]


@pytest.mark.parametrize("way", [ask, streamed])
async def test_a_conversation_with_tools_and_thoughts_is_one_sequence(world, way):
    replies = iter([CALL, f"<think>hm</think>well\n{CALL}\n{CALL}", CALL.replace('{"exp', '{broken "exp'), "### 3"])
    world.vllm.answer = lambda prompt: next(replies)
    attempt = world.attempt(resources=resources_of(world.endpoint, sampling={"thinking": True}))
    billing = {"type": "text", "text": "x-anthropic-billing-header: v=1; cch=abc"}
    messages = [QUESTION]
    async with world.gateway.serving(attempt) as address, client_of(address) as client:
        for call, kinds in enumerate(
            (["tool_use"], ["thinking", "text", "tool_use", "tool_use"], ["tool_use"], ["text"])
        ):
            billing["text"] += str(call)
            system = [billing, {"type": "text", "text": "Calculate.", "cache_control": {"type": "ephemeral"}}]
            answer = await way(client, messages, system=system, tools=[CALCULATE], thinking=THINKING)
            assert [block.type for block in answer.content] == kinds
            assert answer.stop_reason == ("tool_use" if "tool_use" in kinds else "end_turn")
            messages += [{"role": "assistant", "content": answer.content}]
            messages += [{"role": "user", "content": [*results(answer), {"type": "text", "text": "Go on."}]}]
    assert messages[1]["content"][0].input == {"expression": "1+2"}
    assert messages[3]["content"][0].thinking == "hm"
    assert messages[5]["content"][0].input == {"INVALID_JSON": '{broken "expression": "1+2"}'}
    assert answer.usage.output_tokens == len(world.spans[-1].response_ids)
    assert answer.usage.input_tokens == world.spans[-1].context_tokens + len(world.spans[-1].prompt_ids)
    assert [span.segment for span in world.spans] == [0, 0, 0, 0]
    whole = world.vllm.tokenizer.decode([id for span in world.spans for id in (*span.prompt_ids, *span.response_ids)])
    assert whole.startswith("<|im_start|>system\nCalculate.\n\nTools:") and "billing" not in whole
    assert (whole.count("<tool_response>"), whole.count("Go on.")) == (4, 3)
    assert attempt.outcome({"reward": 1.0}).dropped == {}


async def test_thoughts_are_shown_to_those_who_ask_for_them(world, anthropic):
    world.vllm.answer = lambda prompt: "<think>hm</think>yes"
    answers = [await way(anthropic, [QUESTION]) for way in (ask, streamed)]
    assert [[block.text for block in answer.content] for answer in answers] == [["yes"]] * 2
    assert world.spans[0].thought == "hm"


async def test_why_a_reply_ended_is_told(world, anthropic):
    world.vllm.answer = lambda prompt: "look\nObservation: none\nHuman:"
    options = dict(stop_sequences=["Human:", "Observation:"])
    stopped = [await way(anthropic, [QUESTION], **options) for way in (ask, streamed)]
    cut = await ask(anthropic, [QUESTION], max_tokens=3)
    for answer in stopped:
        assert (answer.stop_reason, answer.stop_sequence) == ("stop_sequence", "Observation:")
        assert answer.content[0].text == "look\n"
    assert (cut.stop_reason, cut.stop_sequence, cut.usage.output_tokens) == ("max_tokens", None, 3)


async def test_sampling_and_forced_tools_are_left_out_and_counted(world, attempt, anthropic):
    world.vllm.answer = lambda prompt: f"{CALL}\n{CALL}"
    options = dict(
        extra_body={"temperature": 0.2, "top_k": 5}, tools=[CALCULATE | {"strict": True}], metadata={"user_id": "me"}
    )
    forced = {"type": "any", "disable_parallel_tool_use": True}
    answer = await ask(anthropic, [QUESTION], tool_choice=forced, **options)
    await ask(anthropic, [QUESTION], tool_choice={"type": "auto"}, extra_body={"temperature": 1.0})
    assert [block.type for block in answer.content] == ["tool_use"]
    assert attempt.outcome({"reward": 1.0}).dropped == dict.fromkeys(
        ["temperature", "top_k", "strict", "tool_choice"], 1
    )


@pytest.mark.parametrize(
    ("messages", "options", "message"),
    [
        ([{"role": "wizard", "content": "hi"}], {}, "role of user or assistant"),
        ([QUESTION, {"role": "assistant", "content": "It is"}], {}, "prefill is not supported"),
        ([{"role": "user", "content": [{"type": "image", "source": {}}]}], {}, "'image'"),
        ([{"role": "user", "content": [3]}], {}, "cannot be read"),
        ([{"role": "user", "content": []}], {}, "no message"),
        ([QUESTION], {"thinking": True}, "wrong type"),
        ([QUESTION], {"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "'web_search_20250305'"),
        ([QUESTION], {"extra_body": {"mcp_servers": [{"type": "url"}]}}, "mcp_servers is not supported: use tools"),
    ],
)
async def test_what_cannot_be_read_is_named_in_anthropics_form(messages, options, message, anthropic):
    with pytest.raises(BadRequestError, match=message) as refused:
        await ask(anthropic, messages, **options)
    with pytest.raises(NotFoundError):
        await anthropic.messages.create(model="claude", messages=[QUESTION], max_tokens=1)
    assert refused.value.body["type"] == "error" and refused.value.type == "invalid_request_error"


@pytest.mark.parametrize(("sampled", "echoed"), [("1.0", "1"), ("1e2", "100"), ("[1.50]", "[1.5]")])
async def test_numbers_may_come_back_as_another_language_writes_them(world, sampled, echoed, anthropic):
    call = CALL.replace('"1+2"', sampled)
    world.vllm.answer = lambda prompt: call
    answer = await ask(anthropic, [QUESTION], tools=[CALCULATE])
    content = [block.model_dump(exclude_none=True) for block in answer.content]
    content[0]["input"] = json.loads(f'{{"expression": {echoed}}}')
    await ask(
        anthropic,
        [QUESTION, {"role": "assistant", "content": content}, {"role": "user", "content": results(answer)}],
        tools=[CALCULATE],
    )
    assert [span.segment for span in world.spans] == [0, 0]
