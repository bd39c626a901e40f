"""From chat messages to token ids, appending only: what was sampled is never re-tokenized.

A conversation is held as one growing list of token ids. Its next prompt is everything so far plus
the newly encoded messages; the chat template is only ever asked what a *new* message looks like, so
a template that rewrites earlier turns (Qwen3's drops earlier thoughts) cannot change the past.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

ChatMessage = dict[str, str]
"""{"role": "system" | "user" | "assistant", "content": text}"""

_SAMPLED_REPLY = "\u2063sampled reply\u2063"  # stands for the reply when the template is asked what follows it


class Tokenizer(Protocol):
    """The part of a transformers tokenizer that is used."""

    def apply_chat_template(self, conversation: list[ChatMessage], **kwargs: object) -> str:
        """Render messages as text."""

    def encode(self, text: str, **kwargs: object) -> list[int]:
        """Text to token ids."""

    def decode(self, token_ids: Sequence[int], **kwargs: object) -> str:
        """Token ids to text."""


class ChatTokens:
    """Encodes new messages of a conversation and decodes sampled replies, for one tokenizer.

    thinking: passed to templates that know ``enable_thinking`` (Qwen3); others ignore it.
    """

    def __init__(self, tokenizer: Tokenizer, thinking: bool = False):
        self._tokenizer = tokenizer
        self._thinking = thinking
        control_tokens = sorted(map(str, tokenizer.get_added_vocab()), key=len, reverse=True)
        self._control_pattern = re.compile("|".join(map(re.escape, control_tokens))) if control_tokens else None

    @classmethod
    def load(cls, folder: Path, thinking: bool = False) -> "ChatTokens":
        """Load the tokenizer of a Hugging Face model folder; ValueError when it has no chat template."""
        from transformers import AutoTokenizer  # takes seconds, so only where a model is really played

        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        if not tokenizer.chat_template:
            raise ValueError(f"the tokenizer in {folder} has no chat template; use an instruction-tuned model's folder")
        tokens = cls(tokenizer, thinking)
        tokens.next_prompt((), [{"role": "user", "content": "?"}])  # an unfit template shows now, not in mid-game
        return tokens

    def first_prompt(self, messages: Sequence[ChatMessage]) -> list[int]:
        """Token ids of a new conversation, up to where the reply begins."""
        return self._encode(self._render(self._as_data(messages), add_generation_prompt=True))

    def next_prompt(self, last_response: Sequence[int], messages: Sequence[ChatMessage]) -> list[int]:
        """Token ids that follow a sampled reply: the end of its turn, the new messages, the next turn's head.

        last_response: ids of the reply just before; when sampling already gave the end-of-turn
            token, it is not repeated.
        """
        after_reply = self._after_reply(messages)
        ids = self._encode(after_reply)
        if last_response and ids and last_response[-1] == ids[0]:
            return ids[1:]
        return ids

    def decode_reply(self, response_ids: Sequence[int]) -> str:
        """The reply as text, without control tokens; <think> tags are kept for the caller to split off."""
        text = self._tokenizer.decode(list(response_ids), skip_special_tokens=False)
        if self._control_pattern is None:
            return text
        return self._control_pattern.sub(
            lambda match: match.group() if match.group() in ("<think>", "</think>") else "", text
        )

    def _after_reply(self, messages: Sequence[ChatMessage]) -> str:
        conversation = [
            {"role": "user", "content": "?"},
            {"role": "assistant", "content": _SAMPLED_REPLY},
            *self._as_data(messages),
        ]
        rendered = self._render(conversation, add_generation_prompt=True)
        _, found, after = rendered.partition(_SAMPLED_REPLY)
        if not found:
            raise ValueError("the chat template changes or drops an assistant's reply; it cannot be used for training")
        return after

    def _as_data(self, messages: Sequence[ChatMessage]) -> list[ChatMessage]:
        """Messages whose text cannot be taken for control tokens: a player may say anything, and be only quoted."""
        if self._control_pattern is None:
            return list(messages)
        return [{**message, "content": self._control_pattern.sub(_disarm, message["content"])} for message in messages]

    def _render(self, conversation: list[ChatMessage], add_generation_prompt: bool) -> str:
        return self._tokenizer.apply_chat_template(
            conversation,
            tokenize=False,
            add_generation_prompt=add_generation_prompt,
            enable_thinking=self._thinking,
        )

    def _encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False))


def _disarm(match: re.Match[str]) -> str:
    token = match.group()
    return f"{token[0]}\u200b{token[1:]}"
