"""Replies that end together are parsed together, and each comes to its own call."""

import asyncio

import pytest

from runners.agents.gateway.reply_parser import ReplyParser
from runners.errors import PolicyUnavailable, RouteRefused
from runners.policy.client import PolicyClient
from tests.support.tasks import HERE
from tests.support.waiting import until

CHAT_REQUEST = {"model": "policy", "messages": [{"role": "user", "content": "?"}]}


@pytest.fixture
async def parse(world):
    """``parse(text, **more)``: a task that parses a reply."""
    server = PolicyClient(world.endpoint, "policy", 1.0, HERE, retry_seconds=0)
    parser = ReplyParser(server)

    def start(text, **more):
        ids = world.vllm.tokenizer.encode(text, add_special_tokens=False)
        return asyncio.create_task(parser.parse(CHAT_REQUEST | more, ids, "stop"))

    yield start
    await server.close()


async def test_replies_that_end_while_one_is_parsed_are_parsed_together(world, parse):
    world.vllm.parse_gate.clear()
    replies = [parse("first")]
    await until(lambda: world.vllm.parsed == [1])
    texts = [f"reply {number}" for number in range(7)]
    replies += map(parse, texts)
    other_tools = parse("of another", tools=[])
    await until(lambda: world.vllm.parsed == [1, 1])
    replies[3].cancel()
    world.vllm.parse_gate.set()
    found = await asyncio.gather(*replies, return_exceptions=True)
    assert isinstance(found.pop(3), asyncio.CancelledError)
    assert [message["content"] for message in found] == ["first", *texts[:2], *texts[3:]]
    assert (await other_tools)["content"] == "of another"
    assert world.vllm.parsed == [1, 1, 6]
    assert (await parse("later"))["content"] == "later"


@pytest.mark.parametrize("status", [400, 500])
async def test_a_reply_that_the_server_cannot_parse_fails_alone(world, parse, status):
    world.vllm.unparsable, world.vllm.unparsable_status = "bad", status
    one, bad, other = await asyncio.gather(*map(parse, ("one", "bad", "other")), return_exceptions=True)
    assert (one["content"], other["content"]) == ("one", "other")
    assert isinstance(bad, RouteRefused)
    assert world.vllm.parsed == [3, 1, 1, 1]


async def test_replies_that_no_server_answers_fail_together(parse, monkeypatch):
    asked = []

    async def ask(self, chat_request, choices):
        asked.append(len(choices))
        raise PolicyUnavailable("away")

    monkeypatch.setattr(ReplyParser, "_ask", ask)
    found = await asyncio.gather(*map(parse, ("one", "two", "three")), return_exceptions=True)
    assert [str(error) for error in found] == ["away"] * 3 and asked == [3]
