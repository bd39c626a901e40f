"""Renders conversations on this machine, where the model's folder lies here: a request to its server less in a call.

What a server makes of a conversation is its own business, so it is asked about each shape of conversation once: only
those of which it made the same tokens as we are rendered here from then on.
"""

import asyncio
import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runners.agents.gateway.requests import Message

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

logger = logging.getLogger(__name__)


class LocalRenderer:
    """Token ids of conversations, of one model folder."""

    def __init__(self, tokenizer: "PreTrainedTokenizerBase"):
        self._tokenizer = tokenizer
        self._agreed: dict[bytes, bool] = {}

    @classmethod
    async def load(cls, folder: Path) -> "LocalRenderer | None":
        """The renderer of a folder; None where it is not on this machine or holds no tokenizer to render with."""
        if not folder.is_dir():
            return None
        try:
            tokenizer = await asyncio.to_thread(_load, folder)
        except (ImportError, OSError, ValueError) as error:
            logger.info("conversations are rendered by the policy's server: %s", error)
            return None
        return cls(tokenizer) if tokenizer.chat_template else None

    def rendered(self, body: Mapping[str, Any]) -> list[int] | None:
        """Token ids of what vLLM's render route would be asked; None where it must be asked."""
        return self._ids(body) if self._agreed.get(_shape(body)) else None

    def learn(self, body: Mapping[str, Any], theirs: Sequence[int]) -> None:
        """Note whether the server made of a conversation what we would."""
        shape = _shape(body)
        if shape not in self._agreed:
            self._agreed[shape] = self._ids(body) == list(theirs)

    def _ids(self, body: Mapping[str, Any]) -> list[int] | None:
        try:
            text = self._tokenizer.apply_chat_template(
                [_as_template_sees(message) for message in body["messages"]],
                tools=body.get("tools"),
                tokenize=False,
                add_generation_prompt=body.get("add_generation_prompt", True),
                **body["chat_template_kwargs"],
            )
            return self._tokenizer.encode(text, add_special_tokens=False)
        except Exception as error:  # a template's own code raises what it likes; the server says what is wrong
            logger.debug("a conversation that is not rendered here: %s", error)
            return None


def _load(folder: Path) -> "PreTrainedTokenizerBase":
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder, local_files_only=True)


def _as_template_sees(message: Message) -> Message:
    """The arguments of tool calls decoded, as servers hand them on."""
    if not message.get("tool_calls"):
        return message
    calls = [
        {**call, "function": {**call["function"], "arguments": json.loads(call["function"]["arguments"])}}
        for call in message["tool_calls"]
    ]
    return {**message, "tool_calls": calls}


def _shape(body: Mapping[str, Any]) -> bytes:
    """What a template looks at besides the words: settings, tools, and what each message has."""
    said = [
        [message["role"], len(message.get("tool_calls") or ()), *sorted(name for name in message if message[name])]
        for message in body["messages"]
    ]
    rest = {name: value for name, value in body.items() if name != "messages"}
    return hashlib.blake2b(json.dumps([said, rest], sort_keys=True).encode(), digest_size=16).digest()
