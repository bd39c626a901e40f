"""A seat whose context is full goes on from a recap that fits if any does, and never lacks a fact."""

import pytest
from agentscope.message import Msg

from runners.errors import CannotPlay, PromptTooLong
from runners.policy.model import TokenExactChatModel
from runners.werewolf.game import Action, Event, EventKind, Role
from runners.werewolf.players import PolicyPlayer
from runners.werewolf.prompts_zh.questions import render_question
from runners.werewolf.prompts_zh.record import RECAP_SPEECH_CHARS, render_events, render_recap
from store.schema import TokenLimits
from tests.runners.werewolf.test_demonstrations import RepeatingServer
from tests.support.chat_templates import chat_tokens
from tests.support.werewolf.reply_tables import QUESTIONS, seen

REPLY_TOKENS, SYSTEM, VOTE = 40, {"role": "system", "content": "你是2号。"}, QUESTIONS["vote"]


def day(number):
    speeches = [
        Event(EventKind.SPEECH, number, seat=seat, text=f"第{number}天我怀疑{seat}号。" * 40) for seat in (1, 3)
    ]
    return [Event(EventKind.NIGHT_FALLS, number), *speeches, Event(EventKind.EXILED, number, target=number + 3)]


EVENTS = (*day(1), *day(2), *day(3))
QUOTED = render_recap(EVENTS, 2)
TODAYS = render_recap(EVENTS[:8], 2, speech_chars=0) + "\n" + render_events(EVENTS[8:], RECAP_SPEECH_CHARS)
WORDLESS = render_recap(EVENTS, 2, speech_chars=0)


@pytest.mark.parametrize(
    ("recap", "context_of"),
    [
        (QUOTED, lambda sizes: 2 * sizes[0] + REPLY_TOKENS),
        (TODAYS, lambda sizes: 2 * sizes[0] + REPLY_TOKENS - 1),
        (TODAYS, lambda sizes: 2 * sizes[1] + REPLY_TOKENS),
        (WORDLESS, lambda sizes: 2 * sizes[1] + REPLY_TOKENS - 1),
        (WORDLESS, lambda sizes: sizes[2] + REPLY_TOKENS),
        (None, lambda sizes: sizes[2] + REPLY_TOKENS - 1),
    ],
)
@pytest.mark.parametrize("served", [False, True], ids=["tokenizer", "server's tokenizer"])
async def test_words_of_earlier_days_go_first_and_never_a_fact(tiny_tokenizer, monkeypatch, recap, context_of, served):
    tokens = chat_tokens(tiny_tokenizer)
    server = RepeatingServer([await tokens.encode_reply("决定：4号")])

    async def size(told):
        user = {"role": "user", "content": f"{told}\n{render_question(VOTE)}"}
        return len(await tokens.first_prompt([SYSTEM, user]))

    sizes = [await size(told) for told in (QUOTED, TODAYS, WORDLESS)]
    context_tokens = context_of(sizes)
    assert sizes == sorted(sizes, reverse=True) and await size(render_events(EVENTS)) + REPLY_TOKENS > context_tokens
    if served:  # vLLM renders nothing that is longer than its context
        whole = tokens.first_prompt

        async def first_prompt(messages):
            if len(ids := await whole(messages)) > context_tokens:
                raise PromptTooLong("too long", 400, "This model's maximum context length is")
            return ids

        monkeypatch.setattr(tokens, "first_prompt", first_prompt)
    limits = TokenLimits(context_tokens=context_tokens, reply_tokens=REPLY_TOKENS)
    player = PolicyPlayer(2, TokenExactChatModel(server, tokens, limits, "key"), SYSTEM["content"])
    for event in EVENTS:
        await player.observe(Msg("法官", "", "system", metadata={"event": event}))
    observed = seen(VOTE, *EVENTS, role=Role.VILLAGER, day=3)
    if recap is None:
        with pytest.raises(CannotPlay, match=r"2号.*exceeds the context by 1 tokens.*rollout\.context_tokens"):
            await player.decide(observed)
        assert server.prompts == []
        return
    assert (await player.decide(observed)).action == Action(4)
    (prompt,) = server.prompts
    assert f"<|im_start|>user\n{recap}\n{render_question(VOTE)}<|im_end|>" in tiny_tokenizer.decode(prompt)
