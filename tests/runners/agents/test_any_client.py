"""Random conversations through three packages: every one is one sequence, of exactly the tokens that were sampled."""

import asyncio
import json
import random
import re

import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI

from tests.support.agents.fakes_agents import attempt_of, resources_of
from tests.support.agents.tool_model import TOOL

SCHEMA = TOOL["function"]["parameters"]
WORDS = [
    "well",
    "天黑请闭眼",
    "ночь",
    "🐺🔮",
    "e\u0301",
    "שלום",
    '"quoted"',
    "\\n",
    "{}",
    "</think",
    "<tool",
    " ",
    "\n",
]
LIMITS = {"context_tokens": 1_000_000, "reply_tokens": 100_000}


def words(chance, most):
    return " ".join(chance.choice(WORDS) for _ in range(chance.randint(1, most)))


def arguments(chance):
    """Of a call, as a model may write them: now and then very long, or no JSON."""
    values = {
        "expression": words(chance, 800 if chance.random() < 0.05 else 8),
        "数": [chance.choice([1, -2.50, 1e3, 10**17, True, None]), {"深": {"": []}}],
    }
    spaces = chance.choice([None, (",", ":"), (" , ", " : ")])
    text = json.dumps(values, ensure_ascii=chance.random() < 0.5, separators=spaces)
    return text[: chance.randint(1, len(text))] if chance.random() < 0.1 else text


def reply(chance):
    thought = f"<think>{words(chance, 9)}</think>" if chance.random() < 0.4 else ""
    text = words(chance, 9) if chance.random() < 0.7 else ""
    calls = [
        f'<tool_call>\n{{"name": "calculate", "arguments": {arguments(chance)}}}\n</tool_call>'
        for _ in range(chance.choice([0, 1, 1, 2, 3]))
    ]
    # The Agents SDK leaves a reply out of its history that says nothing.
    return thought + "\n".join([text if calls else f"well {text}", *calls])


class Chat:
    """The openai package's chat completions. What it keeps of a reply is changed as agents change it."""

    def __init__(self, address, chance):
        self.client = AsyncOpenAI(base_url=address, api_key="none", max_retries=0)
        self.chance, self.messages = chance, [{"role": "system", "content": "Calculate."}]

    async def turn(self, text):
        self.messages.append({"role": "user", "content": text})
        for _ in range(3):
            asked = dict(model="policy", messages=self.messages, tools=[TOOL])
            if self.chance.random() < 0.5:
                async with self.client.chat.completions.stream(**asked) as stream:
                    message = (await stream.get_final_completion()).choices[0].message
            else:
                message = (await self.client.chat.completions.create(**asked)).choices[0].message
            kept = message.model_dump(include={"role", "content", "tool_calls"}, exclude_none=True)
            for call in kept.get("tool_calls", ()):
                call["function"].pop("parsed_arguments", None)
                if self.chance.random() < 0.5 and is_json(call["function"]["arguments"]):
                    call["function"]["arguments"] = json.dumps(json.loads(call["function"]["arguments"]))
            if self.chance.random() < 0.5:
                kept["content"] = (kept.get("content") or "").strip()
            self.messages.append(kept)
            if not message.tool_calls:
                return
            for call in message.tool_calls:
                self.messages.append({"role": "tool", "tool_call_id": call.id, "content": words(self.chance, 5)})


class Items:
    """The openai package's responses, whose items go back as they came."""

    def __init__(self, address, chance):
        self.client = AsyncOpenAI(base_url=address, api_key="none", max_retries=0)
        self.chance, self.items = chance, []

    async def turn(self, text):
        self.items.append({"role": "user", "content": text})
        tool = {"type": "function", **TOOL["function"], "strict": False}
        for _ in range(3):
            asked = dict(model="policy", input=self.items, instructions="Calculate.", tools=[tool])
            if self.chance.random() < 0.5:
                async with self.client.responses.stream(**asked) as stream:
                    answer = await stream.get_final_response()
            else:
                answer = await self.client.responses.create(**asked)
            self.items += [item.model_dump(exclude_none=True, exclude={"parsed_arguments"}) for item in answer.output]
            calls = [item for item in answer.output if item.type == "function_call"]
            if not calls:
                return
            for call in calls:
                said = words(self.chance, 5)
                self.items.append({"type": "function_call_output", "call_id": call.call_id, "output": said})


class Claude:
    """The anthropic package."""

    def __init__(self, address, chance):
        self.client = AsyncAnthropic(base_url=address, api_key="none", max_retries=0)
        self.chance, self.messages = chance, []

    async def turn(self, text):
        self.messages.append({"role": "user", "content": text})
        tool = {"name": "calculate", "description": TOOL["function"]["description"], "input_schema": SCHEMA}
        for _ in range(3):
            asked = dict(model="policy", messages=self.messages, system="Calculate.", tools=[tool], max_tokens=100_000)
            asked["thinking"] = {"type": self.chance.choice(["adaptive", "disabled"])}
            async with self.client.messages.stream(**asked) as stream:
                answer = await stream.get_final_message()
            self.messages.append({"role": "assistant", "content": answer.content})
            results = [
                {"type": "tool_result", "tool_use_id": block.id, "content": words(self.chance, 5)}
                for block in answer.content
                if block.type == "tool_use"
            ]
            if not results:
                return
            self.messages.append({"role": "user", "content": results})


def is_json(text):
    try:
        return json.loads(text) is not None
    except ValueError:
        return False


async def check_conversation(world, number, kind):
    chance, spans = random.Random(number), []
    resources = resources_of(world.endpoint, sampling={"thinking": chance.random() < 0.5})
    attempt = attempt_of(world.servers, spans, number, resources, limits=LIMITS, max_calls=1000)
    async with world.gateway.serving(attempt) as address:
        talk = kind(address, chance)
        async with talk.client:
            for _ in range(chance.randint(1, 3)):
                await talk.turn(f"{number}: {words(chance, 20)}")
    sampled = {(tuple(asked["prompt"]), tuple(choice["token_ids"])) for asked, choice in world.vllm.exchanges}
    ids = []
    for span in spans:
        assert span.segment == 0, f"conversation {number} is more than one sequence"
        ids += span.prompt_ids
        assert (tuple(ids), span.response_ids) in sampled
        ids += span.response_ids
    whole = world.vllm.tokenizer.decode(ids)
    assert (whole.count("Calculate."), whole.count("Tools:")) == (1, 1)
    return len(spans)


MANY = pytest.param(500, marks=(pytest.mark.endurance, pytest.mark.timeout(1200)))


@pytest.mark.parametrize("conversations", [12, MANY])
@pytest.mark.parametrize("kind", [Chat, Items, Claude])
async def test_any_conversation_is_one_sequence_of_what_was_sampled(world, kind, conversations):
    seen = {}

    def answer(prompt):
        number = int(re.search(r"(\d+): ", prompt)[1])
        seen[number] = seen.get(number, 0) + 1
        return reply(random.Random(f"{number}/{seen[number]}"))

    world.vllm.answer, world.vllm.context_tokens = answer, 1_000_000
    calls = 0
    for start in range(0, conversations, 10):
        world.vllm.exchanges.clear()
        numbers = range(start, min(start + 10, conversations))
        calls += sum(await asyncio.gather(*(check_conversation(world, number, kind) for number in numbers)))
    assert calls > conversations
