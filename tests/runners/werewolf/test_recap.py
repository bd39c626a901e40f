"""A seat whose context is full goes on from a recap that always fits, and never lacks a fact."""

import asyncio

import pytest
from agentscope.message import Msg
from hypothesis import given, settings
from hypothesis import strategies as st

from runners.errors import CannotPlay
from runners.policy.model import TokenExactChatModel
from runners.policy.server import Completion
from runners.werewolf.game import (
    Action,
    Decision,
    Event,
    EventKind,
    Observation,
    Phase,
    Request,
    Role,
    Side,
    get_preset,
)
from runners.werewolf.players import PolicyPlayer
from runners.werewolf.prompts_zh.questions import render_question
from runners.werewolf.prompts_zh.record import RECAP_SPEECH_CHARS, render_events, render_recap
from store.schema import TokenLimits
from tests.support.chat_templates import chat_tokens

REPLY_TOKENS = 40
SYSTEM = "你是3号。"
REQUEST = Request(
    seat=3,
    day=2,
    phase=Phase.EXILE_VOTE,
    decision=Decision.EXILE_VOTE,
    targets=(1, 2, 4),
    options=(),
    may_pass=True,
    speech_chars=0,
    default=Action(),
)
QUESTION = render_question(REQUEST)


class FakeServer:
    """A fake of ``PolicyServer``: says what it is told to, and keeps every prompt."""

    model = "fake"

    def __init__(self, tokenizer, reply="决定：4号"):
        self.tokenizer = tokenizer
        self.reply = reply
        self.prompts = []

    async def complete(self, prompt_ids, max_tokens, seed):
        self.prompts.append(list(prompt_ids))
        reply = self.tokenizer.encode(self.reply, add_special_tokens=False)[: max_tokens - 1]
        return Completion((*reply, self.tokenizer.eos_token_id), (-1.0,) * (len(reply) + 1), "stop")


def player_of(server, context_tokens):
    limits = TokenLimits(context_tokens=context_tokens, reply_tokens=REPLY_TOKENS)
    return PolicyPlayer(3, TokenExactChatModel(server, chat_tokens(server.tokenizer), limits, "key"), SYSTEM)


async def ask(player, events):
    """Tell the player of ``events``, then ask ``REQUEST``."""
    for event in events:
        await player.observe(Msg("法官", "", "system", metadata={"event": event}))
    deck = get_preset("5p_tiny").deck
    observation = Observation(
        3, Role.VILLAGER, Side.GOOD, 2, Phase.EXILE_VOTE, (1, 2, 3, 4), None, events, REQUEST, deck
    )
    return await player.decide(observation)


def speech(seat, text):
    return Event(EventKind.SPEECH, 1, seat=seat, text=text)


def tokens_of(tokenizer, recap):
    conversation = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": recap}]
    return len(asyncio.run(chat_tokens(tokenizer).first_prompt(conversation)))


seats = st.integers(1, 12)
facts = st.one_of(
    st.builds(lambda day: Event(EventKind.NIGHT_FALLS, day), st.integers(1, 9)),
    st.builds(lambda seat, target: Event(EventKind.VOTE, 1, seat=seat, target=target), seats, st.none() | seats),
    st.builds(lambda seat: Event(EventKind.EXILED, 1, target=seat), seats),
)
# Silence, or more words than the mark that stands for them.
words = st.just("") | st.text(st.sampled_from("我是好人，投3号。"), min_size=10, max_size=120)
speeches = st.builds(lambda seat, text: Event(EventKind.SPEECH, 1, seat=seat, text=text), seats, words)


@given(events=st.lists(speeches | facts, min_size=1, max_size=40).map(tuple), share=st.floats(-1, 1))
@settings(max_examples=150, deadline=None)
def test_the_oldest_words_go_first_as_few_as_possible_and_never_a_fact(tiny_tokenizer, events, share):
    short, long = (render_events(events, chars).split("\n") for chars in (0, RECAP_SPEECH_CHARS))
    head = render_recap((), 3).rstrip("\n")
    # Line by line, from all the words that a recap quotes to none of them.
    recaps = ["\n".join([head, *short[:told], *long[told:], QUESTION]) for told in range(len(long) + 1)]
    recaps = list(dict.fromkeys(recaps))
    sizes = [tokens_of(tiny_tokenizer, recap) for recap in recaps]
    everything = tokens_of(tiny_tokenizer, f"{render_events(events)}\n{QUESTION}")
    context_tokens = 2 * (REPLY_TOKENS + sizes[-1] + round(share * (sizes[0] - sizes[-1])))
    context_tokens = min(context_tokens, REPLY_TOKENS + everything - 1)
    server = FakeServer(tiny_tokenizer)
    player = player_of(server, context_tokens)
    if sizes[-1] + REPLY_TOKENS > context_tokens:
        with pytest.raises(CannotPlay, match=r"3号.*tokens too many.*rollout\.context_tokens"):
            asyncio.run(ask(player, events))
        assert server.prompts == []
        return
    assert asyncio.run(ask(player, events)).action == Action(4)
    (prompt,) = server.prompts
    fitting = [number for number, size in enumerate(sizes) if size + REPLY_TOKENS <= context_tokens // 2]
    kept = fitting[0] if fitting else len(sizes) - 1
    assert len(prompt) == sizes[kept] <= context_tokens - REPLY_TOKENS
    assert f"<|im_start|>user\n{recaps[kept]}<|im_end|>" in tiny_tokenizer.decode(prompt)
