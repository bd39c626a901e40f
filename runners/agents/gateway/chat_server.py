"""One vLLM as the gateway uses it: renders messages to token ids, samples, and parses what it sampled.

Messages are rendered here where that gives what the server makes of them (``runners.policy.codecs.AgreedCodec``).
Everything below ``/v1/``, but for the tokenizer's routes that runners use anyway, and through ``PolicyServer``, so that
versions, patience and restarts are those of every other call of a policy.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from runners.agents.gateway.requests import Message, ModelRequest, RequestRefused
from runners.errors import PolicyUnavailable, RouteRefused
from runners.policy.chat_template import ChatTemplate
from runners.policy.codecs import (
    DETOKENIZE_ROUTE,
    AgreedCodec,
    LocalCodec,
    ServedCodec,
    UnfitTemplate,
    template_variables,
)
from runners.policy.server import Completion, PolicyServer
from store.schema import Sampling

logger = logging.getLogger(__name__)

PARSE_ROUTE = "/v1/chat/completions/derender"


class ChatServer:
    """A policy's server, with what was learnt of its chat template. Made by ``of``."""

    def __init__(self, server: PolicyServer, codec: ServedCodec, template: ChatTemplate, thinking: bool):
        self.server = server
        self._codec = codec
        self._template = template
        self._variables = template_variables(thinking)

    @classmethod
    async def of(cls, server: PolicyServer, run_name: str, policy: str, sampling: Sampling) -> "ChatServer":
        """Learn what ends a reply, before the first one is sampled. Raises PolicyUnavailable."""
        folder, codec = Path(await server.model_folder()), ServedCodec(server, sampling.thinking)
        if folder.is_dir():
            try:
                codec = AgreedCodec(server, await LocalCodec.load(folder, sampling.thinking), sampling.thinking)
            except (ImportError, OSError, ValueError) as error:
                logger.info("conversations are rendered by the policy's server: %s", error)
        try:
            with _refusals(server):
                template = await ChatTemplate.of(codec)
        except (UnfitTemplate, RequestRefused) as error:
            raise PolicyUnavailable(f"no agent can be played with {server.endpoint}: {error}") from error
        server.stop_token_ids = (template.end_of_turn,)
        return cls(server, codec, template, sampling.thinking)

    async def first_prompt(self, request: ModelRequest) -> list[int]:
        """Token ids of a whole conversation. Raises RequestRefused for one that the server does not take."""
        with _refusals(self.server):
            return await self._codec.render(request.messages, **_tools(request))

    async def next_prompt(self, request: ModelRequest, held: int, last_id: int) -> list[int]:
        """Token ids that follow a sampled reply: the end of its turn, the new messages, the next turn's head.

        held: messages of the request up to the reply. last_id: the reply's last token; the end of turn is not repeated.
        Raises UnfitTemplate where they cannot be told apart from what came before, or are not taken alone.
        """
        new = request.messages[held:]
        calls = request.messages[held - 1].get("tool_calls") or () if new and new[0]["role"] == "tool" else ()
        try:
            with _refusals(self.server):
                return await self._template.after_reply(last_id, new, calls)
        except RequestRefused as error:
            raise UnfitTemplate(str(error)) from error

    async def sample(self, prompt: Sequence[int], reply_tokens: int, seed: int, stop: Sequence[str]) -> Completion:
        return await self.server.complete(prompt, reply_tokens, seed, stop)

    async def parse(self, request: ModelRequest, prompt_tokens: int, sampled: Completion) -> Message:
        """A reply as an assistant's message: content, reasoning and tool calls. Raises PolicyUnavailable."""
        ids = sampled.token_ids
        if ids[-1] in self.server.stop_token_ids:
            ids = ids[:-1]  # parsers take it for text
        if not ids:
            return {"role": "assistant", "content": ""}
        choice = {"index": 0, "token_ids": ids, "finish_reason": sampled.finish_reason}
        body = {
            "prompt_tokens": prompt_tokens,
            "generate_response": {"request_id": "reply", "choices": [choice]},
            # The parsers look at the tools and at the template's arguments, not at the conversation.
            "chat_request": {
                "model": self.server.model,
                "messages": [{"role": "user", "content": "?"}],
                "chat_template_kwargs": self._variables,
                **_tools(request),
            },
        }
        with _refusals(self.server):
            answer = await self.server.ask(PARSE_ROUTE, body)
        try:
            found = answer["choices"][0]["message"]
            message: Message = {"role": "assistant", "content": found.get("content")}
        except (LookupError, TypeError, AttributeError) as error:
            raise PolicyUnavailable(f"{self.server.endpoint} parses replies otherwise than vLLM 0.28 does") from error
        if found.get("reasoning"):
            message["reasoning"] = found["reasoning"]
        if calls := found.get("tool_calls"):
            message["tool_calls"] = calls if request.parallel else calls[:1]
        return message


@contextmanager
def _refusals(server: PolicyServer) -> Iterator[None]:
    """What the server refuses: RequestRefused for what the agent asked, PolicyUnavailable for all else."""
    try:
        yield
    except RouteRefused as error:
        if error.status != 400:
            raise PolicyUnavailable(
                f"{error}. Agents need vLLM 0.28 and a proxy that forwards all of /v1/ and {DETOKENIZE_ROUTE}"
            ) from error
        if "--tool-call-parser" in error.detail:
            raise PolicyUnavailable(
                f"{server.endpoint} cannot read tool calls: set serving.tool_parser, or start that vLLM with "
                f"--enable-auto-tool-choice and --tool-call-parser"
            ) from error
        too_long = "context_length_exceeded" if "maximum context length" in error.detail else None
        raise RequestRefused(error.detail, code=too_long, param="messages") from error


def _tools(request: ModelRequest) -> dict[str, Any]:
    if not request.tools:
        return {}
    return {"tools": list(request.tools), "tool_choice": "auto" if request.use_tools else "none"}
