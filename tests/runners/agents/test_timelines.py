"""Which sequence a call goes on with, over random histories: branches, retries, trims, rewrites, sub-agents."""

import asyncio
import json
import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runners.agents.gateway.requests import RequestRefused
from runners.agents.gateway.timelines import same_message
from runners.policy.chat_tokens import UnusableTemplate
from runners.policy.client import Completion
from tests.support.agents.fakes_agents import attempt_of, request_of
from tests.support.waiting import until

END, HEAD, TOOLS = 1, 2, 3
ROLES = {"system": 4, "user": 5, "assistant": 6, "tool": 7}
VARIANT = 1_000_000  # a token and the same plus a multiple of this say the same


def encode(text):
    return [100 + ord(character) for character in text]


def said(message):
    """A message's text, as the fake template shows it."""
    return json.dumps(same_message(message)[1:], sort_keys=True)


class FakeChatServer:
    """A fake of ``ChatServer``: a token for each character, and several that say the same, as sampling finds them."""

    def __init__(self, chance):
        self.chance = chance
        self.unfit = False
        self.gate = asyncio.Event()
        self.gate.set()
        self.waiting = 0  # calls that are here

    async def get(self, resources, policy, caller):
        return self

    def rendered(self, messages):
        ids = []
        for message in messages:
            ids += [ROLES[message["role"]], *encode(said(message)), END]
        return [*ids, HEAD, ROLES["assistant"]]

    async def first_prompt(self, request):
        return [TOOLS, *encode(json.dumps(list(request.tools))), END, *self.rendered(request.messages)]

    async def next_prompt(self, request, held, last_id):
        if self.unfit:
            raise UnusableTemplate("fake")
        ids = self.rendered(request.messages[held:])
        return ids if last_id == END else [END, *ids]

    async def reply(self, request, prompt, new, reply_tokens, seed, on_part):
        self.waiting += 1
        await self.gate.wait()
        self.waiting -= 1
        message = {"role": "assistant", "content": self.chance.choice(["yes", "no ", "\nyes"])}
        if self.chance.random() < 0.4:
            function = {"name": "f", "arguments": self.chance.choice(['{"a": 1}', '{"a":1}', "{broken"])}
            message["tool_calls"] = [{"id": f"call-{self.chance.random()}", "function": function}]
        ids = [token + VARIANT * self.chance.randrange(3) for token in encode(said(message))]
        cut = self.chance.random() < 0.2
        self.sampled = message
        sampled = (*ids,) if cut else (*ids, END)
        return Completion(sampled, (-1.0,) * len(sampled), "length" if cut else "stop"), message


@dataclass
class Conversation:
    """What the agent believes it has said so far. ``asked``: messages of its last call."""

    messages: list
    tools: tuple = ()
    asked: list = field(default_factory=list)


class Agent:
    """Acts at random and checks every call against a search through everything that was ever answered."""

    def __init__(self, seed):
        self.chance = random.Random(seed)
        self.server = FakeChatServer(self.chance)
        self.spans = []
        self.attempt = attempt_of(self.server, self.spans)
        self.sequences = []  # of each segment: its tokens
        self.points = []  # of each reply: (tools, messages, segment, length, its tool call's id)
        self.conversations = []

    async def call(self, conversation):
        messages = [dict(message) for message in conversation.messages]
        before = [list(sequence) for sequence in self.sequences]
        reply = await self.attempt.call(request_of(messages, tools=conversation.tools))
        span = self.spans[-1]
        self.check(conversation.tools, messages, span, before)
        conversation.asked = messages
        conversation.messages = [*messages, self.echoed(reply.message)]

    def check(self, tools, messages, span, before):
        keys = [same_message(message) for message in messages]
        replies = [point for point in self.points if point[0] == tools and point[1] == keys[: len(point[1])]]
        longest = max((len(point[1]) for point in replies), default=0)
        starts = [point for point in replies if len(point[1]) == longest]
        echoed = messages[longest - 1].get("tool_calls", [{}])[0].get("id") if longest else None
        starts = [point for point in starts if point[4] == echoed] or starts
        ends = {point[2] for point in starts if point[3] == len(before[point[2]])}
        if ends:  # goes on with a sequence, from its end
            assert span.segment in ends
            assert span.context_tokens == len(before[span.segment])
        else:
            assert span.segment == len(before)
            assert span.context_tokens == 0
            self.sequences.append([])
        sequence = self.sequences[span.segment]
        prompt = [*sequence, *span.prompt_ids]
        if starts:  # whatever was said before stands there as it was sampled
            known = [before[point[2]][: point[3]] for point in starts]
            assert any(prompt[: len(start)] == start for start in known)
        assert self.text(prompt) == self.text(self.whole(tools, messages))
        sequence[:] = [*prompt, *span.response_ids]
        reply = self.server.sampled
        call_id = reply.get("tool_calls", [{}])[0].get("id")
        self.points.append((tools, [*keys, same_message(reply)], span.segment, len(sequence), call_id))

    def whole(self, tools, messages):
        return [TOOLS, *encode(json.dumps(list(tools))), END, *self.server.rendered(messages)]

    @staticmethod
    def text(ids):
        """What token ids say, without the marks of a turn that a reply may or may not have sampled itself."""
        return [token % VARIANT for token in ids if token % VARIANT not in (HEAD,)]

    def echoed(self, message):
        """The reply as a client may send it back."""
        echo = {"role": "assistant", "content": message["content"]}
        if self.chance.random() < 0.5:
            echo["content"] = echo["content"].strip() + self.chance.choice(["", " "])
        if "tool_calls" in message:
            call = dict(message["tool_calls"][0]["function"])
            if self.chance.random() < 0.5 and call["arguments"] != "{broken":
                call["arguments"] = json.dumps(json.loads(call["arguments"]), indent=1)
            kept = message["tool_calls"][0]["id"] if self.chance.random() < 0.7 else "another"
            echo["tool_calls"] = [{"id": kept, "function": call}]
        return echo

    def new(self):
        system = self.chance.choice(["plan", "work"])
        messages = [{"role": "system", "content": system}, {"role": "user", "content": self.chance.choice("ab")}]
        self.conversations.append(Conversation(messages, self.chance.choice([(), ({"function": {"name": "f"}},)])))
        return self.conversations[-1]

    def answer(self, conversation):
        role = "tool" if conversation.messages[-1].get("tool_calls") else "user"
        conversation.messages.append({"role": role, "content": self.chance.choice(["1", "2", " 2"])})

    async def act(self, what):
        if what == "new" or not self.conversations:
            return await self.call(self.new())
        conversation = self.chance.choice(self.conversations)
        if what == "go on":
            self.answer(conversation)
        elif what == "say nothing new":
            pass
        elif what == "retry" and conversation.asked:
            conversation.messages = list(conversation.asked)
        elif what == "branch":
            replies = [n for n, message in enumerate(conversation.messages) if message["role"] == "assistant"]
            other = Conversation(conversation.messages[: self.chance.choice(replies) + 1], conversation.tools)
            self.conversations.append(other)
            conversation = other
            self.answer(conversation)
        elif what == "trim":
            kept = self.chance.randrange(1, len(conversation.messages))
            conversation.messages = [conversation.messages[0], *conversation.messages[kept:]]
            self.answer(conversation)
        elif what == "rewrite":
            place = self.chance.randrange(len(conversation.messages))
            old = conversation.messages[place]
            conversation.messages[place] = {"role": old["role"], "content": (old["content"] or "") + "!"}
            self.answer(conversation)
        elif what == "other tools":
            conversation.tools = ({"function": {"name": "g"}},)
            self.answer(conversation)
        return await self.call(conversation)


ACTS = ["new", "go on", "go on", "go on", "say nothing new", "retry", "branch", "trim", "rewrite", "other tools"]


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32), st.lists(st.sampled_from(ACTS), min_size=1, max_size=25))
def test_every_call_continues_the_timeline_that_a_full_search_finds(seed, acts):
    async def run():
        agent = Agent(seed)
        for what in acts:
            await agent.act(what)
        joined(agent.spans)

    asyncio.run(run())


def joined(spans):
    """What the triplets' code does: the segments of an actor, each span going on exactly where the last one ended."""
    sequences = {}
    for span in spans:
        sequence = sequences.setdefault((span.actor, span.segment), [])
        assert span.context_tokens == len(sequence)
        sequence += [*span.prompt_ids, *span.response_ids]
    for actor in {name for name, _ in sequences}:
        numbers = sorted(segment for name, segment in sequences if name == actor)
        assert numbers == list(range(len(numbers)))
    return sequences


async def test_two_calls_at_once_from_one_point_make_two_sequences():
    agent = Agent(2)
    conversation = agent.new()
    await agent.call(conversation)
    agent.answer(conversation)
    agent.server.gate.clear()
    calls = [
        asyncio.create_task(agent.attempt.call(request_of(conversation.messages, tools=conversation.tools)))
        for _ in range(2)
    ]
    await until(lambda: agent.server.waiting == 2)
    agent.server.gate.set()
    await asyncio.gather(*calls)
    first, one, other = agent.spans
    assert [one.segment, other.segment] == [0, 1]
    assert (*first.prompt_ids, *first.response_ids) == other.prompt_ids[: one.context_tokens]
    joined(agent.spans)


async def test_a_call_that_is_broken_off_leaves_its_place_to_the_next():
    agent = Agent(3)
    conversation = agent.new()
    await agent.call(conversation)
    agent.answer(conversation)
    agent.server.gate.clear()
    call = asyncio.create_task(agent.attempt.call(request_of(conversation.messages, tools=conversation.tools)))
    await until(lambda: agent.server.waiting == 1)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    agent.server.gate.set()
    await agent.call(conversation)
    assert [span.segment for span in agent.spans] == [0, 0]
    joined(agent.spans)


async def test_what_cannot_be_appended_is_rendered_whole_and_begins_a_sequence():
    agent = Agent(4)
    conversation = agent.new()
    await agent.call(conversation)
    agent.answer(conversation)
    agent.server.unfit = True
    await agent.attempt.call(request_of(conversation.messages, tools=conversation.tools))
    assert [(span.segment, span.context_tokens) for span in agent.spans] == [(0, 0), (1, 0)]


async def test_a_name_stands_for_one_policy_alone():
    agent = Agent(7)
    messages = [{"role": "user", "content": "a"}]
    await agent.attempt.call(request_of(messages, model="policy", actor="one"))
    with pytest.raises(RequestRefused, match="one actor name for each policy"):
        await agent.attempt.call(request_of(messages, model="past", actor="one"))
