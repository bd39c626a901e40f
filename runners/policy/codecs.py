"""Messages and text to token ids and back: by a local tokenizer, by vLLM's routes, or both.

A chat template is a program: a server's template runs there; only templates of local folders run here.
"""

import asyncio
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from jinja2 import TemplateError
from tokenizers import Tokenizer

from runners.errors import PromptTooLong, RouteRefused
from runners.policy.client import PolicyClient
from runners.policy.model_folder import ChatTemplates, read_tokenizer

RENDER_ROUTE, TOKENIZE_ROUTE, DETOKENIZE_ROUTE = "/v1/chat/completions/render", "/tokenize", "/detokenize"

Message = Mapping[str, Any]


class UnusableTemplate(ValueError):
    """A chat template that does not allow append-only conversations; the message says why."""


class Codec(Protocol):
    """A tokenizer with its chat template."""

    async def render(self, messages: Sequence[Message], **more: Any) -> list[int]:
        """Token ids of a conversation, by default with a generation prompt. more: parameters of vLLM's render route."""

    async def encode(self, text: str) -> list[int]:
        """Token ids of a text."""

    async def text(self, token_ids: Sequence[int]) -> str:
        """Token ids as text, control tokens included."""


class LocalCodec:
    """A tokenizer on this machine. Rendering raises UnusableTemplate for messages that its template rejects.

    added: added vocabulary with its ids, which tokenizers match first.
    """

    def __init__(self, tokenizer: Tokenizer, templates: ChatTemplates, thinking: bool = False):
        self.added = {token.content: token_id for token_id, token in tokenizer.get_added_tokens_decoder().items()}
        self._tokenizer = tokenizer
        self._templates = templates
        self._variables = template_variables(thinking)

    @classmethod
    def of(cls, folder: Path, thinking: bool = False) -> "LocalCodec":
        """The tokenizer of a Hugging Face model folder. Raises OSError or ValueError without one or without a
        template."""
        return cls(read_tokenizer(folder), ChatTemplates(folder), thinking)

    @classmethod
    async def load(cls, folder: Path, thinking: bool = False) -> "LocalCodec":
        """As ``of``, in a thread, since a large vocabulary takes a second to load."""
        return await asyncio.to_thread(cls.of, folder, thinking)

    async def render(self, messages: Sequence[Message], **more: Any) -> list[int]:
        try:
            text = self._templates.render(
                list(map(_with_arguments_decoded, messages)),
                more.get("tools"),
                add_generation_prompt=more.get("add_generation_prompt", True),
                **self._variables,
            )
        except (TemplateError, TypeError, ValueError) as error:  # raised by the template's code
            raise UnusableTemplate(f"the chat template rejects a conversation: {error}") from error
        return await self.encode(text)

    async def encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    async def text(self, token_ids: Sequence[int]) -> str:
        return self._tokenizer.decode(list(token_ids), skip_special_tokens=False)


_TOO_LONG = "maximum context length"
"""In vLLM's error for a conversation that is longer than its context."""


class ServedCodec:
    """The tokenizer at a policy's server. Methods raise RouteRefused and PolicyUnavailable."""

    def __init__(self, server: PolicyClient, thinking: bool):
        self._server = server
        self._variables = template_variables(thinking)

    async def render(self, messages: Sequence[Message], **more: Any) -> list[int]:
        body = {"messages": list(messages), "chat_template_kwargs": self._variables, **more}
        try:
            return (await self._server.ask(RENDER_ROUTE, body))["token_ids"]
        except RouteRefused as error:
            if error.status == 400 and _TOO_LONG in error.detail:
                raise PromptTooLong(str(error), error.status, error.detail) from error
            raise

    async def encode(self, text: str) -> list[int]:
        return (await self._server.ask(TOKENIZE_ROUTE, {"prompt": text, "add_special_tokens": False}))["tokens"]

    async def text(self, token_ids: Sequence[int]) -> str:
        return (await self._server.ask(DETOKENIZE_ROUTE, {"tokens": list(token_ids)}))["prompt"]


class AgreedCodec(ServedCodec):
    """Renders locally where the result equals the server's, which saves a request per call.

    The server renders the first conversation of each shape; if the local result is equal, later ones of that shape are
    rendered locally.
    """

    def __init__(self, server: PolicyClient, local: LocalCodec, thinking: bool):
        super().__init__(server, thinking)
        self._local = local
        self._agreed: dict[bytes, bool] = {}

    async def render(self, messages: Sequence[Message], **more: Any) -> list[int]:
        # Inputs of a template other than text: tools, and the fields of each message.
        said = [
            [message["role"], len(message.get("tool_calls") or ()), *sorted(name for name in message if message[name])]
            for message in messages
        ]
        shape = hashlib.blake2b(json.dumps([said, more], sort_keys=True).encode(), digest_size=16).digest()
        ours = None
        if self._agreed.get(shape, True):
            try:
                ours = await self._local.render(messages, **more)
            except Exception:  # a template's code may raise anything; the server reports the error
                self._agreed[shape] = False
        if ours is not None and shape in self._agreed:
            return ours
        theirs = await super().render(messages, **more)
        self._agreed.setdefault(shape, ours == theirs)
        return theirs


def _with_arguments_decoded(message: Message) -> Message:
    """A message as servers pass it to templates: arguments of tool calls are objects."""
    if not message.get("tool_calls"):
        return message
    calls = [
        {**call, "function": {**call["function"], "arguments": json.loads(call["function"]["arguments"])}}
        for call in message["tool_calls"]
    ]
    return {**message, "tool_calls": calls}


def template_variables(thinking: bool) -> dict[str, bool]:
    """Template variables that switch thinking: Qwen3's and DeepSeek's."""
    return {"enable_thinking": thinking, "thinking": thinking}
