"""The game's conversations as token ids, appending only: what was sampled is never tokenized again.

The next prompt is everything so far plus the newly encoded messages (``runners.policy.chat_template``), so a template
that rewrites earlier turns (Qwen3's drops earlier thoughts) or adds a system prompt (Qwen2.5's, where there is none)
cannot change the past. What players say cannot turn into control tokens.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from runners.errors import RouteRefused, UnusableTokenizer
from runners.policy.chat_template import ChatTemplate
from runners.policy.codecs import (
    DETOKENIZE_ROUTE,
    RENDER_ROUTE,
    TOKENIZE_ROUTE,
    Codec,
    LocalCodec,
    ServedCodec,
    UnfitTemplate,
)
from runners.policy.server import PolicyServer

INFO_ROUTE = "/tokenizer_info"

ChatMessage = dict[str, str]
"""{"role": "system" | "user" | "assistant", "content": text}"""

THINK, END_THINK = "<think>", "</think>"

_RULES, _QUESTION, _REPLY = "你是3号玩家，身份是预言家。", "第1夜，请选择。", "决定：5号"
_REMEDY = (
    f"start vLLM 0.28 with --enable-tokenizer-info-endpoint, let a proxy before it forward {RENDER_ROUTE}, "
    f"{INFO_ROUTE}, {TOKENIZE_ROUTE} and {DETOKENIZE_ROUTE}, or copy the model's tokenizer files here and "
    f"name their folder with --tokenizer"
)
# Added vocabulary without these is ordinary text: some models add white space or words.
_BRACKETS = re.compile(r"[<>\[\]{}|｜]")


class ChatTokens:
    """Encodes new messages of a conversation and decodes sampled replies. Made by ``of``, ``load`` or ``served``.

    All methods raise what the codec raises. end_of_turn: id of the token that ends a reply.
    """

    def __init__(self, codec: Codec, template: ChatTemplate, control: Mapping[str, int]):
        """control: the control tokens, with their ids."""
        self.end_of_turn = template.end_of_turn
        self._codec = codec
        self._template = template
        self._pattern = re.compile("|".join(map(re.escape, sorted(control, key=len, reverse=True))))

    @classmethod
    async def of(cls, codec: Codec, added: Mapping[str, int]) -> "ChatTokens":
        """Learn what begins and ends a reply. Raises UnfitTemplate at once, not in mid-game.

        added: the vocabulary that is matched in a text before anything else, with its ids.
        """
        control = {token: token_id for token, token_id in added.items() if _BRACKETS.search(token)}
        if not control:
            raise UnfitTemplate("the tokenizer has no control tokens, so nothing could mark the end of a reply")
        template = await ChatTemplate.of(codec)
        if template.end_of_turn not in control.values():
            raise UnfitTemplate("the chat template marks the end of a reply with no control token")
        tokens = cls(codec, template, control)
        await tokens._learn()
        return tokens

    @classmethod
    async def load(cls, folder: Path, thinking: bool = False) -> "ChatTokens":
        """From a model's folder on this machine. Raises UnusableTokenizer, which names the remedy."""
        if not folder.is_dir():
            raise UnusableTokenizer(
                f"the folder {folder}, named with --tokenizer, is not on this machine: copy the model's tokenizer "
                f"files there, or leave --tokenizer out to use the tokenizer of the policy's server"
            )
        try:
            local = await LocalCodec.load(folder, thinking)
            return await cls.of(local, local.added)
        except (OSError, ValueError) as error:
            raise UnusableTokenizer(f"the tokenizer in {folder} cannot be used: {error}") from error

    @classmethod
    async def served(cls, server: PolicyServer, thinking: bool = False) -> "ChatTokens":
        """Of a policy's server. Raises PolicyUnavailable; UnusableTokenizer where the server does not offer it."""
        try:
            added = (await server.ask(INFO_ROUTE))["added_tokens_decoder"]
            added = {str(token): int(token_id) for token_id, token in added.items()}
            return await cls.of(ServedCodec(server, thinking), added)
        except RouteRefused as error:
            raise UnusableTokenizer(
                f"the policy's tokenizer is not on this machine, and its server does not offer it ({error}): {_REMEDY}"
            ) from error
        except (AttributeError, LookupError, TypeError, ValueError) as error:  # answers of another shape, too
            raise UnusableTokenizer(
                f"the tokenizer that the server at {server.endpoint} describes cannot be used: {error}"
            ) from error

    async def first_prompt(self, messages: Sequence[ChatMessage]) -> list[int]:
        """Token ids of a conversation's first call, ending where the reply begins."""
        return await self._codec.render(self._as_data(messages))

    async def next_prompt(self, last_response: Sequence[int], messages: Sequence[ChatMessage]) -> list[int]:
        """Token ids that follow a sampled reply: the end of its turn, the new messages, the next turn's head.

        last_response: ids of the reply just before; when sampling already gave the end-of-turn token, it is not
            repeated.
        """
        return await self._template.after_reply(last_response[-1] if last_response else None, self._as_data(messages))

    async def encode_reply(self, text: str) -> list[int]:
        """Token ids of a reply that was not sampled, with the end of its turn, as they follow a prompt.

        Where the prompt itself opened a thought, it is closed at once. Control tokens in the text become plain text.
        """
        words = self._pattern.sub(_disarm, text)
        words = f"{END_THINK}\n\n{words}" if self._opens_thought else words
        return [*await self._codec.encode(words), self.end_of_turn]

    async def decode_reply(self, response_ids: Sequence[int]) -> str:
        """The reply as text, without control tokens; <think> tags are kept for the caller to split off.

        Where the prompt itself opened a thought, the reply is given its opening tag, so that a thought cut at the
        limit cannot pass for words.
        """
        kept = (THINK, END_THINK)
        text = await self.decode(response_ids)
        text = self._pattern.sub(lambda match: match.group() if match.group() in kept else "", text)
        return THINK + text if self._opens_thought else text

    async def decode(self, token_ids: Sequence[int]) -> str:
        return await self._codec.text(token_ids)

    def _as_data(self, messages: Sequence[ChatMessage]) -> list[ChatMessage]:
        """Messages whose text cannot be taken for control tokens: a player may say anything, and be only quoted."""
        return [{**message, "content": self._pattern.sub(_disarm, message["content"])} for message in messages]

    async def _learn(self) -> None:
        """Whether the prompt opens a thought. Raises UnfitTemplate for a template that loses something."""
        question, rules = {"role": "user", "content": _QUESTION}, {"role": "system", "content": _RULES}
        ruled = await self.decode(await self.first_prompt([rules, question]))
        if _RULES not in ruled or _QUESTION not in ruled:
            raise UnfitTemplate("the chat template drops system prompts or questions, or changes their text")
        prompt = await self.decode(await self.first_prompt([question]))
        self._opens_thought = prompt.rfind(THINK) > prompt.rfind(END_THINK)
        reply = {"role": "assistant", "content": _REPLY}
        answered = await self.decode(await self._codec.render([question, reply], add_generation_prompt=False))
        head, full_head = prompt.rpartition(_QUESTION)[2], answered.partition(_REPLY)[0].rpartition(_QUESTION)[2]
        by_model = full_head.removeprefix(head) if full_head.startswith(head) else ""
        if self._pattern.search(by_model.replace(THINK, "").replace(END_THINK, "")):
            raise UnfitTemplate(f"the chat template leaves it to the model to write {by_model!r} before its reply")


def _disarm(match: re.Match[str]) -> str:
    token = match.group()
    return f"{token[0]}\u200b{token[1:]}" if len(token) > 1 else ""
