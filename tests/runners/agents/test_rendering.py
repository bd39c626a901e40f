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
    """A call, a tool's result, and another call; the prompts that were sampled from, and how many the server made."""
    said, rendered = len(world.vllm.exchanges), world.vllm.renders
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
    return [exchange[0]["prompt"] for exchange in world.vllm.exchanges[said:]], world.vllm.renders - rendered


@pytest.mark.parametrize("alike", [True, False])
async def test_what_the_server_rendered_alike_once_is_rendered_here_and_all_else_there(world, folder, alike):
    world.vllm.answer = lambda prompt: CALL
    remote = [(await converse(world, question))[0] for question in ("one?", "another?")]
    await world.servers.close()  # as for a runner that starts where the folder is
    world.vllm.model_folder = str(folder)
    if not alike:
        template = folder / "chat_template.jinja"
        template.write_text(template.read_text().replace("Tools:", "Functions:"))
    first, asked_first = await converse(world, "one?")
    later, asked_later = await converse(world, "another?")
    assert [first, later] == remote and asked_first > 0
    assert (asked_later == 0) is alike
    _, asked = await converse(world, "one?", tools=())
    assert asked > 0, "another shape"
