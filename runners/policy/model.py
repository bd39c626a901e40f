"""A policy, trained or frozen, as an AgentScope chat model that works in token ids.

One instance is one seat of one game. It holds the seat's growing sequence of token ids, sends all of it to vLLM's
completions endpoint (mostly served from the prefix cache), and returns for every call the added ids, the sampled ids
and their log-probs.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agentscope.message import TextBlock
from agentscope.model import ChatModelBase, ChatResponse

from runners.errors import PromptTooLong
from runners.policy.chat_tokens import ChatMessage, ChatTokens
from runners.policy.client import Sampler, seed_of
from runners.policy.word_log_probs import word_log_probs
from store.schema import TokenLimits
from store.token_spans import context_digest


class ContextFull(Exception):
    """The next turn exceeds the seat's context budget; nothing was sent."""


@dataclass(frozen=True, slots=True)
class SampledTurn:
    """One call in tokens; fields as in ``store.werewolf.TurnSpan``.

    policy_version: None if the server does not report it.
    """

    segment: int
    context_tokens: int
    context_digest: str
    prompt_ids: tuple[int, ...]
    response_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: str
    started: float
    ended: float
    policy_version: int | None = None
    version_until: int | None = None


@dataclass(frozen=True, slots=True)
class ProbePrompt:
    """The prompt of a probe, without a sampled reply; fields as in ``SampledTurn``."""

    segment: int
    context_tokens: int
    prompt_ids: tuple[int, ...]


class TokenExactChatModel(ChatModelBase):
    """An AgentScope chat model with its conversation as one append-only list of token ids.

    Called, as any AgentScope model, with the whole conversation. If that extends the previous call's (its messages, the
    reply, new messages), only the new messages are encoded. Any other conversation starts a new segment.
    """

    def __init__(self, server: Sampler, tokens: ChatTokens, limits: TokenLimits, sampling_key: str):
        """sampling_key: with the call's number it seeds the sampling, so that a game can be replayed."""
        super().__init__(server.model, stream=False)
        self._server = server
        self._tokens = tokens
        self._limits = limits
        self._sampling_key = sampling_key
        self._conversation: list[ChatMessage] = []
        self._ids: list[int] = []
        self._calls = 0
        self._segment = -1

    async def __call__(self, messages: list[ChatMessage], *args: Any, **kwargs: Any) -> ChatResponse:
        """Sample a reply. ``metadata["sampled"]`` of the response is the call's ``SampledTurn``.

        Raises ContextFull before anything is sent if prompt plus reply would pass the budget, and
        PolicyUnavailable if the server does not answer.
        """
        new = await self._next_prompt(messages)
        context = self._ids[: new.context_tokens]
        prompt = [*context, *new.prompt_ids]
        started = time.time()
        completion = await self._server.complete(
            prompt, self._limits.reply_tokens, seed_of(f"{self._sampling_key}/{self._calls}")
        )
        ended = time.time()
        self._calls += 1
        self._segment = new.segment
        sampled = SampledTurn(
            segment=new.segment,
            context_tokens=new.context_tokens,
            context_digest=context_digest(context),
            prompt_ids=new.prompt_ids,
            response_ids=completion.token_ids,
            logprobs=completion.logprobs,
            finish_reason=completion.finish_reason,
            started=started,
            ended=ended,
            policy_version=completion.policy_version,
            version_until=completion.version_until,
        )
        text = await self._tokens.decode_reply(completion.token_ids)
        self._ids = [*prompt, *completion.token_ids]
        self._conversation = [*messages, {"role": "assistant", "content": text}]
        return ChatResponse(content=[TextBlock(type="text", text=text)], metadata={"sampled": sampled})

    async def word_log_probs(
        self, conversations: Sequence[list[ChatMessage]], words: Sequence[Sequence[int]]
    ) -> tuple[list[ProbePrompt], list[list[float]]]:
        """Log-probs of each of ``words`` as the reply to each conversation; the model's state does not change.

        words: token ids (``encode_words``). Returns the prompts, and for each the words' log-probs
        (``runners.policy.word_log_probs``; raises its errors). Raises ContextFull before anything is sent.
        """
        probes = await self.probe_prompts(conversations)
        prompts = [[*self._ids[: prompt.context_tokens], *prompt.prompt_ids] for prompt in probes]
        return probes, await word_log_probs(self._server, prompts, words)

    async def probe_prompts(self, conversations: Sequence[list[ChatMessage]]) -> list[ProbePrompt]:
        """The prompt for each conversation; nothing is sent, the state does not change. Raises ContextFull."""
        return [await self._next_prompt(messages) for messages in conversations]

    async def encode_words(self, text: str) -> tuple[int, ...]:
        """Token ids of a reply's first words, without the end of its turn."""
        return tuple((await self._tokens.encode_reply(text))[:-1])

    async def excess(self, messages: list[ChatMessage], share: float = 1.0) -> float:
        """Tokens by which ``messages`` would exceed ``share`` of what a prompt may have; at most 0 if they fit,
        infinite if the server does not render them.

        Sends nothing.
        """
        try:
            context, prompt_ids = await self._prompt(messages)
        except PromptTooLong:
            return math.inf
        most = self._limits.context_tokens - self._limits.reply_tokens
        return len(context) + len(prompt_ids) - int(share * most)

    async def _next_prompt(self, messages: list[ChatMessage]) -> ProbePrompt:
        try:
            context, prompt_ids = await self._prompt(messages)
        except PromptTooLong as error:
            raise ContextFull(str(error)) from error
        excess = len(context) + len(prompt_ids) + self._limits.reply_tokens - self._limits.context_tokens
        if excess > 0:
            raise ContextFull(
                f"{len(context)} + {len(prompt_ids)} prompt tokens and a reply of {self._limits.reply_tokens} "
                f"exceed the budget of {self._limits.context_tokens} by {excess}"
            )
        return ProbePrompt(self._segment + (0 if context else 1), len(context), tuple(prompt_ids))

    async def _prompt(self, messages: list[ChatMessage]) -> tuple[list[int], list[int]]:
        """(context ids, new ids); the context is empty if ``messages`` do not extend the last call's."""
        known = len(self._conversation)
        if known > 0 and messages[:known] == self._conversation:
            return self._ids, await self._tokens.next_prompt(self._ids[-1:], messages[known:])
        return [], await self._tokens.first_prompt(messages)
