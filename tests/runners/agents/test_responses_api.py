"""The Responses API as the Agents SDK uses it, through the real openai package; conversations: test_any_client."""

import pytest
from openai import BadRequestError, NotFoundError

from tests.support.agents.fakes_agents import CALL
from tests.support.agents.tool_model import TOOL

RESPONSES_TOOL = {"type": "function", **TOOL["function"], "strict": True}


async def ask(client, given, **options):
    return await client.responses.create(model="policy", input=given, **options)


def echoed(answer):
    """Its items as the Agents SDK sends them back."""
    return [item.model_dump(exclude_none=True) for item in answer.output]


async def test_a_streamed_answer_says_the_same_as_a_whole_one(world, openai):
    world.vllm.answer = lambda prompt: f"<think>hm</think>well\n{CALL}"
    whole = await ask(openai, "?", tools=[RESPONSES_TOOL])
    events = [event async for event in await ask(openai, "?", tools=[RESPONSES_TOOL], stream=True)]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert events[-1].type == "response.completed"
    told = [{**item, "id": "", "call_id": ""} for item in echoed(events[-1].response)]
    expected = [{**item, "id": "", "call_id": ""} for item in echoed(whole)]
    assert told == expected
    done = [event.item.type for event in events if event.type == "response.output_item.done"]
    assert done == ["reasoning", "message", "function_call"]
    deltas = {event.type: event.delta for event in events if event.type.endswith("delta")}
    assert deltas == {
        "response.output_text.delta": "well\n",
        "response.function_call_arguments.delta": '{"expression": "1+2"}',
    }


async def test_an_earlier_response_is_gone_on_with_by_its_id(world, attempt, openai):
    world.vllm.answer = lambda prompt: CALL
    options = {"instructions": "Be brief.", "tools": [RESPONSES_TOOL]}
    first = await ask(openai, "one", **options)
    await ask(openai, "two", previous_response_id=first.id, **options)
    assert [said["content"] for said in attempt.responses[first.id]] == ["one", ""]
    with pytest.raises(NotFoundError, match="unknown earlier response"):
        await ask(openai, "two", previous_response_id="resp_unknown")
    first, second = world.spans
    assert second.context_tokens == len(first.prompt_ids) + len(first.response_ids)


async def test_a_reply_that_was_cut_says_so(world, openai):
    world.vllm.answer = lambda prompt: "天" * 50
    answer = await ask(openai, "?", max_output_tokens=5)
    events = [event async for event in await ask(openai, "?", max_output_tokens=5, stream=True)]
    assert (answer.status, answer.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert answer.usage.output_tokens == 5
    assert events[-1].type == "response.incomplete"


async def test_sampling_and_formats_are_left_out_and_counted(attempt, openai):
    schema = {"type": "json_schema", "name": "x", "schema": {"type": "object"}}
    await ask(openai, "?", temperature=0.2, text={"format": schema}, reasoning={"effort": "high"}, store=False)
    await ask(openai, "?", temperature=1.0, text={"format": {"type": "text"}}, tool_choice="auto")
    assert attempt.outcome({"reward": 1.0}).dropped == {"temperature": 1, "text": 1, "reasoning": 1}


@pytest.mark.parametrize(
    ("given", "options", "message"),
    [
        ([{"type": "item_reference", "id": "x"}], {}, "'item_reference'"),
        ([{"type": "function_call", "name": "x"}], {}, "lacks 'call_id'"),
        ([], {}, "at least one item"),
        ([{"role": "critic", "content": "x"}], {}, "unknown role 'critic'"),
        ("hi", {"conversation": "conv_1"}, "use previous_response_id or input"),
        (None, {"prompt": {"id": "pmpt_1"}}, "prompt is not supported: use instructions"),
    ],
)
async def test_what_cannot_be_read_is_named(given, options, message, openai):
    with pytest.raises(BadRequestError, match=message):
        await ask(openai, given, **options)


async def test_arguments_that_a_parser_broke_neither_end_a_conversation_nor_make_it_two(world, openai):
    """vllm#55495: what its qwen3_xml parser made of a call, after which it refused all that came."""
    broken = '{"cmd": "timeout 7\\n7", "echo SAC_NAME=$SAC_NAME; echo CCA=$SCITEX_CARDS_AGENT_ID\\n</parameter": '
    world.vllm.answer = lambda prompt: f'<tool_call>\n{{"name": "calculate", "arguments": {broken}}}\n</tool_call>'
    history = [{"role": "user", "content": "one"}, {"role": "user", "content": "two"}]
    for _ in range(3):
        (call,) = (await ask(openai, history, tools=[RESPONSES_TOOL])).output
        assert call.arguments == broken
        result = {"type": "function_call_output", "call_id": call.call_id, "output": "error"}
        history += [call.model_dump(exclude_none=True), result]
    assert [(span.segment, span.valid) for span in world.spans] == [(0, False)] * 3
    await ask(openai, history[1:], tools=[RESPONSES_TOOL])  # rendered anew, call and all
    assert world.spans[-1].segment == 1
    assert "INVALID_JSON" in world.vllm.tokenizer.decode(world.spans[-1].prompt_ids)
