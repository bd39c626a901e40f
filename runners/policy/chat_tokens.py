"""Append-only conversations in token ids: sampled tokens are never tokenized again.

The next prompt is all tokens so far plus the newly encoded messages (``runners.policy.chat_template``), so a template
that rewrites earlier turns (Qwen3's drops thoughts) or adds a system prompt (Qwen2.5's) cannot change the past. Text of
players cannot become control tokens.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from runners.errors import RouteRefused, UnusableTokenizer
from runners.policy.chat_template import ChatTemplate
from runners.policy.client import PolicyClient
from runners.policy.codecs import (
    DETOKENIZE_ROUTE,
    RENDER_ROUTE,
    TOKENIZE_ROUTE,
    Codec,
    LocalCodec,
    ServedCodec,
    UnusableTemplate,
)

INFO_ROUTE = "/tokenizer_info"

ChatMessage = dict[str, str]
"""{"role": "system" | "user" | "assistant", "content": text}"""

THINK, END_THINK = "<think>", "</think>"

_RULES, _QUESTION, _REPLY = "你是3号玩家，身份是预言家。", "第1夜，请选择。", "决定：5号"
_REMEDY = (
    f"start vLLM 0.28 or 0.29 with --enable-tokenizer-info-endpoint, let a proxy before it forward {RENDER_ROUTE}, "
    f"{INFO_ROUTE}, {TOKENIZE_ROUTE} and {DETOKENIZE_ROUTE}, or copy the model's tokenizer files here and "
    f"name their folder with --tokenizer"
)
# Added tokens without these are ordinary text: some models add white space or words.
_BRACKETS = re.compile(r"[<>\[\]{}|｜]")


class ChatTokens:
    """Encodes new messages of a conversation and decodes sampled replies. Made by ``of``, ``load`` or ``served``.

    Methods raise the codec's errors. end_of_turn: id of the token that ends a reply.
    """

    def __init__(self, codec: Codec, template: ChatTemplate, control: Mapping[str, int]):
        """control: the control tokens, with their ids."""
        self.end_of_turn = template.end_of_turn
        self._codec = codec
        self._template = template
        self._pattern = re.compile("|".join(map(re.escape, sorted(control, key=len, reverse=True))))

    @classmethod
    async def of(cls, codec: Codec, added: Mapping[str, int]) -> "ChatTokens":
        """Find what begins and ends a reply. Raises UnusableTemplate before a game starts.

        added: added vocabulary with its ids, which tokenizers match first.
        """
        control = {token: token_id for token, token_id in added.items() if _BRACKETS.search(token)}
        if not control:
            raise UnusableTemplate("the tokenizer has no control tokens, so nothing can mark the end of a reply")
        template = await ChatTemplate.of(codec)
        if template.end_of_turn not in control.values():
            raise UnusableTemplate("the chat template ends a reply with no control token")
        tokens = cls(codec, template, control)
        await tokens._learn()
        return tokens

    @classmethod
    async def load(cls, folder: Path, thinking: bool = False) -> "ChatTokens":
        """From a model folder on this machine. Raises UnusableTokenizer, naming the remedy."""
        if not folder.is_dir():
            raise UnusableTokenizer(
                f"the folder {folder} of --tokenizer does not exist on this machine: copy the model's tokenizer files "
                f"there, or omit --tokenizer to use the tokenizer of the policy's server"
            )
        try:
            local = await LocalCodec.load(folder, thinking)
            return await cls.of(local, local.added)
        except (OSError, ValueError) as error:
            raise UnusableTokenizer(f"the tokenizer in {folder} cannot be used: {error}") from error

    @classmethod
    async def served(cls, server: PolicyClient, thinking: bool = False) -> "ChatTokens":
        """From a policy's server. Raises PolicyUnavailable, and UnusableTokenizer if the server does not offer it."""
        try:
            added = (await server.ask(INFO_ROUTE))["added_tokens_decoder"]
            added = {str(token): int(token_id) for token_id, token in added.items()}
            return await cls.of(ServedCodec(server, thinking), added)
        except RouteRefused as error:
            raise UnusableTokenizer(
                f"the policy's tokenizer is not on this machine, and its server does not offer it ({error}): {_REMEDY}"
            ) from error
        except (AttributeError, LookupError, TypeError, ValueError) as error:  # also malformed answers
            raise UnusableTokenizer(
                f"the tokenizer that the server at {server.endpoint} describes cannot be used: {error}"
            ) from error

    async def first_prompt(self, messages: Sequence[ChatMessage]) -> list[int]:
        """Token ids of a conversation's first call, ending where the reply begins."""
        return await self._codec.render(self._as_data(messages))

    async def next_prompt(self, last_response: Sequence[int], messages: Sequence[ChatMessage]) -> list[int]:
        """Token ids that follow a sampled reply: the end of its turn, the new messages, the next turn's head.

        last_response: ids of the previous reply; an end-of-turn token that it has is not repeated.
        """
        return await self._template.after_reply(last_response[-1] if last_response else None, self._as_data(messages))

    async def encode_reply(self, text: str) -> list[int]:
        """Token ids of a reply that was not sampled, with the end of its turn.

        Closes a thought that the prompt opened. Control tokens in the text become plain text.
        """
        words = self._pattern.sub(_disarm, text)
        words = f"{END_THINK}\n\n{words}" if self._opens_thought else words
        return [*await self._codec.encode(words), self.end_of_turn]

    async def decode_reply(self, response_ids: Sequence[int]) -> str:
        """The reply as text, without control tokens but with <think> tags.

        If the prompt opened a thought, the opening tag is added, so that a truncated thought is not taken for words.
        """
        kept = (THINK, END_THINK)
        text = await self.decode(response_ids)
        text = self._pattern.sub(lambda match: match.group() if match.group() in kept else "", text)
        return THINK + text if self._opens_thought else text

    async def decode(self, token_ids: Sequence[int]) -> str:
        return await self._codec.text(token_ids)

    def _as_data(self, messages: Sequence[ChatMessage]) -> list[ChatMessage]:
        """Messages without control tokens in their text: players may write anything."""
        return [{**message, "content": self._pattern.sub(_disarm, message["content"])} for message in messages]

    async def _learn(self) -> None:
        """Find whether the prompt opens a thought. Raises UnusableTemplate for a template that drops text."""
        question, rules = {"role": "user", "content": _QUESTION}, {"role": "system", "content": _RULES}
        ruled = await self.decode(await self.first_prompt([rules, question]))
        if _RULES not in ruled or _QUESTION not in ruled:
            raise UnusableTemplate("the chat template drops system prompts or questions, or changes their text")
        prompt = await self.decode(await self.first_prompt([question]))
        self._opens_thought = prompt.rfind(THINK) > prompt.rfind(END_THINK)
        reply = {"role": "assistant", "content": _REPLY}
        answered = await self.decode(await self._codec.render([question, reply], add_generation_prompt=False))
        head, full_head = prompt.rpartition(_QUESTION)[2], answered.partition(_REPLY)[0].rpartition(_QUESTION)[2]
        by_model = full_head.removeprefix(head) if full_head.startswith(head) else ""
        if self._pattern.search(by_model.replace(THINK, "").replace(END_THINK, "")):
            raise UnusableTemplate(f"the chat template requires the model to write {by_model!r} before its reply")


def _disarm(match: re.Match[str]) -> str:
    token = match.group()
    return f"{token[0]}\u200b{token[1:]}" if len(token) > 1 else ""
