"""Conversations are rendered by the runner where that gives the server's tokens, and only there."""

import copy

import pytest

from tests.support.agents.fakes_agents import CALL, client_of
from tests.support.agents.tool_model import TEMPLATE, TOOL


@pytest.fixture
def folder(tiny_tokenizer, tmp_path):
    tokenizer = copy.deepcopy(tiny_tokenizer)
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(tmp_path)
    return tmp_path


async def converse(world, question, tools=(TOOL,)):
    """A call, a tool's result, and another call; the prompts that were sampled from."""
    said = len(world.vllm.exchanges)
    messages = [{"role": "system", "content": "Solve."}, {"role": "user", "content": question}]
    async with world.gateway.serving(world.attempt()) as address, client_of(address) as client:
        for _ in range(2):
            asked = dict(model="policy", messages=messages, tools=list(tools))
            message = (await client.chat.completions.create(**asked)).choices[0].message
            messages.append(message.model_dump(exclude_none=True))
            messages += [
                {"role": "tool", "tool_call_id": call.id, "content": f"{question} 7"}
                for call in message.tool_calls or ()
            ]
    return [exchange[0]["prompt"] for exchange in world.vllm.exchanges[said:]]


async def test_what_the_server_rendered_alike_once_is_rendered_here(world, folder):
    world.vllm.answer = lambda prompt: CALL
    remote = await converse(world, "one?"), await converse(world, "another?")
    asked = world.vllm.renders
    await world.servers.close()  # as for a runner that starts where the folder is
    world.vllm.model_folder = str(folder)
    assert await converse(world, "one?") == remote[0]
    asked_first = world.vllm.renders - asked
    assert await converse(world, "another?") == remote[1]
    assert world.vllm.renders - asked == asked_first > 0
    assert [span.context_tokens > 0 for span in world.spans[-2:]] == [False, True]


async def test_a_server_that_renders_otherwise_is_always_asked(world, folder):
    world.vllm.answer = lambda prompt: CALL
    remote = await converse(world, "one?")
    template = folder / "chat_template.jinja"
    template.write_text(template.read_text().replace("Tools:", "Functions:"))
    await world.servers.close()
    world.vllm.model_folder = str(folder)
    await converse(world, "one?")
    asked = world.vllm.renders
    assert await converse(world, "one?") == remote
    assert world.vllm.renders > asked


async def test_another_shape_of_conversation_is_asked_about_anew(world, folder):
    world.vllm.model_folder = str(folder)
    await converse(world, "one?")
    asked = world.vllm.renders
    await converse(world, "one?", tools=())
    assert world.vllm.renders > asked
