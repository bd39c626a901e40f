"""From chat messages to token ids, appending only: what was sampled is never re-tokenized.

A conversation is held as one growing list of token ids. Its next prompt is everything so far plus the newly
encoded messages; the chat template is only ever asked what *new* messages look like, in a conversation of its own,
so a template that rewrites earlier turns (Qwen3's drops earlier thoughts) or adds a system prompt (Qwen2.5's, where
there is none) cannot change the past.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from jinja2 import TemplateError

ChatMessage = dict[str, str]
"""{"role": "system" | "user" | "assistant", "content": text}"""

THINK, END_THINK = "<think>", "</think>"

# What stands for a message where the template is asked for the text around it: between invisible characters that no
# player's words contain, and that no template strips.
_RULES, _QUESTION, _REPLY = "\u2063rules\u2063", "\u2063question\u2063", "\u2063sampled reply\u2063"

# Added vocabulary without these is ordinary text: some models add white space or words.
_BRACKETS = re.compile(r"[<>\[\]{}|｜]")


class Tokenizer(Protocol):
    """The part of a transformers tokenizer that is used."""

    def apply_chat_template(self, conversation: list[ChatMessage], **kwargs: object) -> str:
        """Render messages as text. Raises jinja2.TemplateError for messages that the template refuses."""

    def get_added_vocab(self) -> dict[str, int]:
        """Tokens that are matched in a text before anything else, with their ids."""

    def encode(self, text: str, **kwargs: object) -> list[int]:
        """Text to token ids."""

    def decode(self, token_ids: Sequence[int], **kwargs: object) -> str:
        """Token ids to text."""


class UnfitTemplate(ValueError):
    """A chat template with which a conversation cannot be held append-only; the message says why."""


class ControlTokens:
    """The control tokens of a vocabulary: quoted text must never turn into one of them.

    added: the added vocabulary, by text. Raises UnfitTemplate where nothing in it could mark the end of a reply.
    """

    def __init__(self, added: Mapping[str, int]):
        self.ids = {str(token): token_id for token, token_id in added.items() if _BRACKETS.search(token)}
        if not self.ids:
            raise UnfitTemplate("the tokenizer has no control tokens, so nothing could mark the end of a reply")
        self._pattern = re.compile("|".join(map(re.escape, sorted(self.ids, key=len, reverse=True))))

    def first_in(self, text: str) -> str | None:
        """The first of them in a text."""
        found = self._pattern.search(text)
        return found and found.group()

    def disarmed(self, text: str) -> str:
        """The text with every control token in it changed so that it is encoded as ordinary text."""
        return self._pattern.sub(_disarm, text)

    def left_out(self, text: str) -> str:
        """The text without them, but for the tags around thoughts."""
        return self._pattern.sub(lambda match: match.group() if match.group() in (THINK, END_THINK) else "", text)

    def check_head(self, prompt: str, answered: str, question: str, reply: str) -> None:
        """Raise UnfitTemplate for a template that leaves it to the model to begin its reply with control tokens.

        prompt: the rendered question. answered: the rendered question and reply.
        """
        head, full_head = prompt.rpartition(question)[2], answered.partition(reply)[0].rpartition(question)[2]
        by_model = full_head.removeprefix(head) if full_head.startswith(head) else ""
        if self.first_in(by_model.replace(THINK, "").replace(END_THINK, "")):
            raise UnfitTemplate(f"the chat template leaves it to the model to write {by_model!r} before its reply")


class ChatTokens:
    """Encodes new messages of a conversation and decodes sampled replies, for one tokenizer on this machine.

    thinking: passed to templates that know ``enable_thinking`` (Qwen3) or ``thinking`` (DeepSeek); others ignore it.
    Raises UnfitTemplate at once, not in mid-game.
    """

    end_of_turn: int
    """Id of the token that ends a reply."""

    def __init__(self, tokenizer: Tokenizer, thinking: bool = False):
        self._tokenizer = tokenizer
        self._thinking = thinking
        self._control = ControlTokens(tokenizer.get_added_vocab())
        self.end_of_turn = self._control.ids[self._end_of_turn()]
        self._opens_thought = opens_thought(self._render([_message("user", _QUESTION)]))

    @classmethod
    def load(cls, folder: Path, thinking: bool = False) -> "ChatTokens":
        """Load the tokenizer of a Hugging Face model folder; ValueError without a chat template that fits."""
        from transformers import AutoTokenizer  # takes seconds, so only where a model is really played

        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        if not tokenizer.chat_template:
            raise ValueError(f"the tokenizer in {folder} has no chat template; use an instruction-tuned model's folder")
        return cls(tokenizer, thinking)

    async def first_prompt(self, messages: Sequence[ChatMessage]) -> list[int]:
        """Token ids of a new conversation, up to where the reply begins."""
        return await self._encode(self._render(self._as_data(messages)))

    async def next_prompt(self, last_response: Sequence[int], messages: Sequence[ChatMessage]) -> list[int]:
        """Token ids that follow a sampled reply: the end of its turn, the new messages, the next turn's head.

        last_response: ids of the reply just before; when sampling already gave the end-of-turn token, it is not
            repeated.
        """
        # Encoded whole and then cut, since a control token may swallow the white space beside it.
        ids = await self._encode(_after_reply(self._render(_answered(self._as_data(messages)))))
        if last_response and last_response[-1] == self.end_of_turn:
            return ids[ids.index(self.end_of_turn) + 1 :]
        return ids

    async def encode_reply(self, text: str) -> list[int]:
        """Token ids of a reply that was not sampled, with the end of its turn, as they follow a prompt.

        Where the prompt itself opened a thought, it is closed at once. Control tokens in the text become plain text.
        """
        words = self._control.disarmed(text)
        return [*await self._encode(f"{END_THINK}\n\n{words}" if self._opens_thought else words), self.end_of_turn]

    async def decode_reply(self, response_ids: Sequence[int]) -> str:
        """The reply as text, without control tokens; <think> tags are kept for the caller to split off.

        Where the prompt itself opened a thought, the reply is given its opening tag, so that a thought cut at the
        limit cannot pass for words.
        """
        text = self._control.left_out(await self.decode(response_ids))
        return THINK + text if self._opens_thought else text

    async def decode(self, token_ids: Sequence[int]) -> str:
        """Token ids as text, control tokens included."""
        return self._tokenizer.decode(list(token_ids), skip_special_tokens=False)

    async def _encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False))

    def _as_data(self, messages: Sequence[ChatMessage]) -> list[ChatMessage]:
        """Messages whose text cannot be taken for control tokens: a player may say anything, and be only quoted."""
        return [{**message, "content": self._control.disarmed(message["content"])} for message in messages]

    def _end_of_turn(self) -> str:
        """The control token that ends a reply. Raises UnfitTemplate also for everything else that is wrong."""
        question = [_message("user", _QUESTION)]
        try:
            prompt = self._render([_message("system", _RULES), *question])
            asked, answered = self._render(question), self._render(_answered(question))
        except (TemplateError, TypeError, ValueError) as error:  # what a template's own code raises
            raise UnfitTemplate(f"the chat template takes no system prompt, question and reply: {error}") from error
        after_reply = _after_reply(answered)
        if _RULES not in prompt or _QUESTION not in prompt or _QUESTION not in after_reply:
            raise UnfitTemplate("the chat template drops system prompts or questions, or changes their text")
        self._control.check_head(asked, answered, _QUESTION, _REPLY)
        end_of_turn = self._control.first_in(after_reply.partition(_QUESTION)[0])
        if end_of_turn is None:
            raise UnfitTemplate("the chat template marks the end of a reply with no control token")
        return end_of_turn

    def _render(self, conversation: list[ChatMessage]) -> str:
        return self._tokenizer.apply_chat_template(
            conversation, tokenize=False, add_generation_prompt=True, **template_variables(self._thinking)
        )


def template_variables(thinking: bool) -> dict[str, bool]:
    """The variables by which templates turn a model's thinking on or off."""
    return {"enable_thinking": thinking, "thinking": thinking}


def opens_thought(prompt: str) -> bool:
    """Whether a prompt's own end opens a thought."""
    return prompt.rfind(THINK) > prompt.rfind(END_THINK)


def _message(role: str, content: str) -> ChatMessage:
    return {"role": role, "content": content}


def _answered(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """A conversation in which a reply stands before ``messages``."""
    # Without a system prompt: some templates would show it anew before the last question.
    return [_message("user", _QUESTION), _message("assistant", _REPLY), *messages]


def _after_reply(rendered: str) -> str:
    _, found, after = rendered.partition(_REPLY)
    if not found:
        raise UnfitTemplate("the chat template drops replies, or changes their text")
    return after


def _disarm(match: re.Match[str]) -> str:
    token = match.group()
    return f"{token[0]}\u200b{token[1:]}" if len(token) > 1 else ""
