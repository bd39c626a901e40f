"""From messages and texts to token ids and back: by a tokenizer's files here, by a vLLM's routes, or by both.

A template is a program: that of a policy's server runs there, and here only that of a folder on this machine.
"""

import asyncio
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from jinja2 import TemplateError
from tokenizers import Tokenizer

from runners.policy.model_folder import ChatTemplates, read_tokenizer
from runners.policy.server import PolicyServer

RENDER_ROUTE, TOKENIZE_ROUTE, DETOKENIZE_ROUTE = "/v1/chat/completions/render", "/tokenize", "/detokenize"

Message = Mapping[str, Any]


class UnfitTemplate(ValueError):
    """A chat template with which a conversation cannot be held append-only; the message says why."""


class Codec(Protocol):
    """What a tokenizer and its chat template make of messages, texts and ids."""

    async def render(self, messages: Sequence[Message], **more: Any) -> list[int]:
        """Token ids of a conversation, by default with the head of a reply to it. more: as of vLLM's render route."""

    async def encode(self, text: str) -> list[int]:
        """Token ids of a text."""

    async def text(self, token_ids: Sequence[int]) -> str:
        """Token ids as text, control tokens included."""


class LocalCodec:
    """A tokenizer on this machine. Rendering raises UnfitTemplate for messages that its template refuses.

    added: the vocabulary that is matched in a text before anything else, with its ids.
    """

    def __init__(self, tokenizer: Tokenizer, templates: ChatTemplates, thinking: bool = False):
        self.added = {token.content: token_id for token_id, token in tokenizer.get_added_tokens_decoder().items()}
        self._tokenizer = tokenizer
        self._templates = templates
        self._variables = template_variables(thinking)

    @classmethod
    def of(cls, folder: Path, thinking: bool = False) -> "LocalCodec":
        """The tokenizer of a Hugging Face model folder. OSError or ValueError where there is none with a template."""
        return cls(read_tokenizer(folder), ChatTemplates(folder), thinking)

    @classmethod
    async def load(cls, folder: Path, thinking: bool = False) -> "LocalCodec":
        """As ``of``, in a thread: a large vocabulary takes a second."""
        return await asyncio.to_thread(cls.of, folder, thinking)

    async def render(self, messages: Sequence[Message], **more: Any) -> list[int]:
        try:
            text = self._templates.render(
                list(map(_with_arguments_decoded, messages)),
                more.get("tools"),
                add_generation_prompt=more.get("add_generation_prompt", True),
                **self._variables,
            )
        except (TemplateError, TypeError, ValueError) as error:  # what a template's own code raises
            raise UnfitTemplate(f"the chat template refuses a conversation: {error}") from error
        return await self.encode(text)

    async def encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    async def text(self, token_ids: Sequence[int]) -> str:
        return self._tokenizer.decode(list(token_ids), skip_special_tokens=False)


class ServedCodec:
    """A policy's tokenizer, at its server. All methods raise RouteRefused and PolicyUnavailable."""

    def __init__(self, server: PolicyServer, thinking: bool):
        self._server = server
        self._variables = template_variables(thinking)

    async def render(self, messages: Sequence[Message], **more: Any) -> list[int]:
        body = {"messages": list(messages), "chat_template_kwargs": self._variables, **more}
        return (await self._server.ask(RENDER_ROUTE, body))["token_ids"]

    async def encode(self, text: str) -> list[int]:
        return (await self._server.ask(TOKENIZE_ROUTE, {"prompt": text, "add_special_tokens": False}))["tokens"]

    async def text(self, token_ids: Sequence[int]) -> str:
        return (await self._server.ask(DETOKENIZE_ROUTE, {"tokens": list(token_ids)}))["prompt"]


class AgreedCodec(ServedCodec):
    """Renders here what the server renders alike: a request less in a call.

    The server decides how a conversation is rendered. So it renders the first conversation of each shape; where the
    result equals ours, later ones of that shape are rendered here.
    """

    def __init__(self, server: PolicyServer, local: LocalCodec, thinking: bool):
        super().__init__(server, thinking)
        self._local = local
        self._agreed: dict[bytes, bool] = {}

    async def render(self, messages: Sequence[Message], **more: Any) -> list[int]:
        # What a template looks at besides the words: tools, and what each message has.
        said = [
            [message["role"], len(message.get("tool_calls") or ()), *sorted(name for name in message if message[name])]
            for message in messages
        ]
        shape = hashlib.blake2b(json.dumps([said, more], sort_keys=True).encode(), digest_size=16).digest()
        ours = None
        if self._agreed.get(shape, True):
            try:
                ours = await self._local.render(messages, **more)
            except Exception:  # a template's own code raises what it likes; the server says what is wrong
                self._agreed[shape] = False
        if ours is not None and shape in self._agreed:
            return ours
        theirs = await super().render(messages, **more)
        self._agreed.setdefault(shape, ours == theirs)
        return theirs


def _with_arguments_decoded(message: Message) -> Message:
    """A message as templates see it on servers: the arguments of tool calls are no text."""
    if not message.get("tool_calls"):
        return message
    calls = [
        {**call, "function": {**call["function"], "arguments": json.loads(call["function"]["arguments"])}}
        for call in message["tool_calls"]
    ]
    return {**message, "tool_calls": calls}


def template_variables(thinking: bool) -> dict[str, bool]:
    """The variables by which templates turn a model's thinking on or off: Qwen3's and DeepSeek's."""
    return {"enable_thinking": thinking, "thinking": thinking}
