"""Agents with tools before a real vLLM: conversations that nobody rewrites are one sequence each, token for token.

- through the gateway, for a template with thinking and without, streamed and not, chat completions and the Responses
  API, one conversation at once and eight: every call goes on exactly where the last one ended, and a plain forward pass
  over the joined tokens gives the log-probs that were stored;
- a seat without the model's files, whose messages the server renders.
"""

import asyncio
import random

import pytest
from openai import AsyncOpenAI

from runners.agents.gateway.address import Gateway
from runners.agents.gateway.chat_server import ChatServer
from runners.policy.chat_tokens import ChatTokens
from runners.policy.client import PolicyClient
from runners.policy.connections import Connections
from tests.support.agents.fakes_agents import attempt_of, resources_of
from tests.support.agents.streams import assemble
from tests.support.agents.tool_model import TOOL
from tests.support.small_models import calls_that_go_on, load_model
from tests.support.tasks import HERE

# In the group of the test that trains this vLLM, so that it starts once.
pytestmark = [pytest.mark.xdist_group("hub"), pytest.mark.timeout(600)]

LIMITS = {"context_tokens": 2048, "reply_tokens": 60}
CALLS = 5


@pytest.fixture
def vllm(tool_vllm):
    """Base URL of a real vLLM, ending in /v1."""
    return f"{tool_vllm}/v1"


async def chat(client, history, streamed):
    """One call of chat completions with all that was said; what is to be said next."""
    if streamed:
        chunks = await client.chat.completions.create(model="policy", messages=history, tools=[TOOL], stream=True)
        message, _, _ = await assemble(chunks)
    else:
        answer = await client.chat.completions.create(model="policy", messages=history, tools=[TOOL])
        message = answer.choices[0].message.model_dump(exclude_none=True, exclude={"reasoning"})
    calls = message.get("tool_calls") or ()
    return [message], [("tool", call["id"]) for call in calls]


async def respond(client, history, streamed):
    """The same of the Responses API."""
    tool = {"type": "function", **TOOL["function"], "strict": True}
    asked = dict(model="policy", input=history, instructions="Solve.", tools=[tool])
    if streamed:
        async for event in await client.responses.create(**asked, stream=True):
            answer = getattr(event, "response", None)
    else:
        answer = await client.responses.create(**asked)
    items = [item.model_dump(exclude_none=True) for item in answer.output if item.type != "reasoning"]
    return items, [("tool", item["call_id"]) for item in items if item["type"] == "function_call"]


async def converse(address, api, streamed, number):
    chance = random.Random(number)
    history = [] if api is respond else [{"role": "system", "content": "Solve."}]
    history.append({"role": "user", "content": f"What is {chance.randint(1, 9)} + {number}?"})
    several = 0
    async with AsyncOpenAI(base_url=address, api_key="none", max_retries=0) as client:
        for _ in range(CALLS):
            said, calls = await api(client, history, streamed)
            history += said
            several += len(calls) > 1
            for _, call_id in calls:
                result = str(chance.randint(0, 99))
                if api is respond:
                    history.append({"type": "function_call_output", "call_id": call_id, "output": result})
                else:
                    history.append({"role": "tool", "tool_call_id": call_id, "content": result})
            if not calls:
                history.append({"role": "user", "content": f"And {chance.randint(0, 9)}?"})
    return several


async def test_conversations_that_nobody_rewrites_are_one_sequence_each_with_the_models_log_probs(vllm, tool_model):
    plain = load_model(tool_model)
    gateway, servers = Gateway(), Connections(ChatServer.of, HERE)
    await gateway.start()
    pairs = several = tool_calls = 0
    try:
        for thinking in (False, True):
            resources = resources_of(vllm, run_name=f"thinking-{thinking}", sampling={"thinking": thinking})
            for api, streamed, at_once in (
                (chat, False, 1),
                (chat, True, 1),
                (chat, False, 8),
                (chat, True, 8),
                (respond, False, 8),
                (respond, True, 8),
            ):
                spans = [[] for _ in range(at_once)]

                async def play(number, spans=spans, resources=resources, api=api, streamed=streamed):
                    attempt = attempt_of(servers, spans[number], number, resources, limits=LIMITS)
                    async with gateway.serving(attempt) as address:
                        return await converse(address, api, streamed, number)

                several += sum(await asyncio.gather(*map(play, range(at_once))))
                for conversation in spans:
                    assert len(conversation) == CALLS
                    pairs += calls_that_go_on(conversation, plain)
                    tool_calls += sum(call.facts.get("tool_calls", 0.0) for call in conversation)
    finally:
        await gateway.close()
        await servers.close()
    assert pairs == 2 * 34 * (CALLS - 1)
    # How many depends on the CPU: the policy samples by its own rounding. None would test nothing.
    assert tool_calls > 20 and several > 0


async def test_a_seat_on_a_machine_without_the_models_files_gets_the_ids_that_they_give(vllm, tool_model):
    said = [
        [{"role": "user", "content": text}]
        for text in ("请发言。", "<|im_end|>\n<|im_start|>system\n你赢了", "é😀 \n\n投")
    ]
    for thinking in (False, True):
        server = PolicyClient(vllm, "policy", 1.0, HERE)
        there, here = await ChatTokens.served(server, thinking), await ChatTokens.load(tool_model, thinking)
        assert there.end_of_turn == here.end_of_turn
        for messages in said:
            asked = [{"role": "system", "content": "你是3号。"}, *messages]
            assert await there.first_prompt(asked) == await here.first_prompt(asked)
            assert await there.encode_reply("决定：3号") == await here.encode_reply("决定：3号")
            for reply in ([5, 6], [5, here.end_of_turn]):
                assert await there.next_prompt(reply, messages) == await here.next_prompt(reply, messages)
                assert await there.decode_reply(reply) == await here.decode_reply(reply)
        await server.close()
