"""A vLLM server for the gateway: renders messages to token ids, samples, and parses replies.

Messages are rendered locally if the result equals the server's (``runners.policy.codecs.AgreedCodec``). All requests
use ``/v1/`` or the tokenizer routes, through ``PolicyClient``, which handles versions, retries and restarts.
"""

import asyncio
import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from runners.agents.gateway.reply_parser import PARSE_ROUTE, ReplyParser
from runners.agents.gateway.requests import (
    Block,
    Message,
    ModelRequest,
    PartSink,
    RequestRefused,
    as_object,
    function_call,
    json_object,
    message_of,
)
from runners.errors import PolicyUnavailable, RouteRefused
from runners.policy.chat_template import ChatTemplate
from runners.policy.client import Completion, PolicyClient
from runners.policy.codecs import (
    DETOKENIZE_ROUTE,
    AgreedCodec,
    LocalCodec,
    ServedCodec,
    UnusableTemplate,
    template_variables,
)
from store.schema import Sampling

logger = logging.getLogger(__name__)

_PARSER_OPTION = "--tool-call-parser"  # vLLM's error names it where it has no parser


class ChatServer:
    """A policy's server with its chat template. Made by ``of``."""

    def __init__(self, server: PolicyClient, codec: ServedCodec, template: ChatTemplate, thinking: bool):
        self.server = server
        self._codec = codec
        self._template = template
        self._variables = template_variables(thinking)
        self._parser = ReplyParser(server)
        self._parses_parts = True

    @classmethod
    async def of(cls, server: PolicyClient, run_name: str, policy: str, sampling: Sampling) -> "ChatServer":
        """Find what ends a reply. Raises PolicyUnavailable."""
        folder, codec = Path(await server.model_folder()), ServedCodec(server, sampling.thinking)
        if folder.is_dir():
            try:
                codec = AgreedCodec(server, await LocalCodec.load(folder, sampling.thinking), sampling.thinking)
            except (ImportError, OSError, ValueError) as error:
                logger.info("conversations are rendered by the policy's server: %s", error)
        try:
            with _refusals(server):
                template = await ChatTemplate.of(codec)
        except (UnusableTemplate, RequestRefused) as error:
            raise PolicyUnavailable(f"{server.endpoint} cannot serve agents: {error}") from error
        server.stop_token_ids = (template.end_of_turn,)
        return cls(server, codec, template, sampling.thinking)

    async def first_prompt(self, request: ModelRequest) -> list[int]:
        """Token ids of a whole conversation. Raises RequestRefused for one that the server does not take."""
        with _refusals(self.server):
            return await self._codec.render(list(map(_renderable, request.messages)), **_tools(request))

    async def next_prompt(self, request: ModelRequest, held: int, last_id: int) -> list[int]:
        """Token ids that follow a sampled reply: the end of its turn, the new messages, the next turn's head.

        held: messages of the request up to the reply. last_id: the reply's last token; the end of turn is not repeated.
        Raises UnusableTemplate if they cannot be separated from the earlier messages or rendered alone.
        """
        new = request.messages[held:]
        calls = request.messages[held - 1].get("tool_calls") or () if new and new[0]["role"] == "tool" else ()
        try:
            with _refusals(self.server):
                return await self._template.after_reply(last_id, new, calls)
        except RequestRefused as error:
            raise UnusableTemplate(str(error)) from error

    async def reply(
        self,
        request: ModelRequest,
        prompt: Sequence[int],
        new: int,
        reply_tokens: int,
        seed: int,
        on_part: PartSink | None = None,
    ) -> tuple[Completion, Message]:
        """Sample a reply, and parse it as an assistant message. Raises PolicyUnavailable.

        new: number of the prompt's ids that are new in this call. on_part: see ``Attempt.call``.
        """
        # Stop texts are found in whole replies only.
        in_parts = on_part is not None and self._parses_parts and not request.stop
        tokens: asyncio.Queue[Sequence[int]] = asyncio.Queue()
        on_tokens = tokens.put_nowait if in_parts else None
        sampling = asyncio.create_task(self.server.complete(prompt, reply_tokens, seed, request.stop, on_tokens))
        try:
            message = None
            if on_part is not None and in_parts:
                message = await self._parse_parts(request, prompt[-new:], sampling, tokens, on_part)
            sampled = await sampling
            return sampled, message or await self._parse(request, sampled)
        finally:
            sampling.cancel()

    async def _parse_parts(
        self,
        request: ModelRequest,
        new_ids: Sequence[int],
        sampling: asyncio.Task[Completion],
        tokens: asyncio.Queue[Sequence[int]],
        on_part: PartSink,
    ) -> Message | None:
        """A reply's message, passed on while it is sampled; None if the server cannot parse parts of a reply.

        The server is stateless: it receives its last state with each part, which holds the tokens that were sampled
        during the last request. new_ids: of the prompt, from which parsers see how the reply begins.
        """
        sampling.add_done_callback(lambda _: tokens.put_nowait(()))
        waiting: list[int] = []
        parsed = 0  # number of tokens that parts have had
        blocks: list[Block] = []
        state = reason = None
        while reason is None:
            waiting += await tokens.get()
            while not tokens.empty():
                waiting += tokens.get_nowait()
            reason = sampling.result().finish_reason if sampling.done() else None
            # The last token may end the reply; parsers would take it for text.
            ids = waiting if reason == "length" else waiting[:-1]
            waiting = waiting[len(ids) :]
            if not ids and reason is None:
                continue
            part = {"choices": [{"index": 0, "token_ids": ids, "finish_reason": reason}]}
            body = {"stream": True, "generate_chunk": part, "stream_state": state, "prompt_token_ids": list(new_ids)}
            body |= {"chat_request": self._chat_request(request)}
            try:
                answer = await self.server.ask(PARSE_ROUTE, body, final={500})
            except RouteRefused as error:
                if error.status not in (400, 500, 501) or _PARSER_OPTION in error.detail:
                    with _refusals(self.server):
                        raise
                if state is None:
                    self._parses_parts = error.status == 500  # vLLM before 0.31
                    return None
                whole = await sampling
                ids = whole.token_ids[parsed : -1 if whole.finish_reason == "stop" else None]
                blocks.append(Block("text", await self._codec.text(ids)))  # as in ``_parse``
                await on_part(blocks[-1], blocks[-1].text)
                return message_of(blocks)
            parsed += len(ids)
            state = answer["stream_state"]
            for block, text in _added(blocks, answer["chunk"]["choices"][0]["delta"], request.parallel):
                block.text += text
                await on_part(block, text)
        return message_of(blocks)

    def _chat_request(self, request: ModelRequest) -> dict[str, Any]:
        """The input of parsers: tools and template variables, not the conversation."""
        return {
            "model": self.server.model,
            "messages": [{"role": "user", "content": "?"}],
            "chat_template_kwargs": self._variables,
            **_tools(request),
        }

    async def _parse(self, request: ModelRequest, sampled: Completion) -> Message:
        """A whole reply as an assistant message: content, reasoning and tool calls. Raises PolicyUnavailable."""
        ids = sampled.token_ids
        with _refusals(self.server):
            if sampled.finish_reason == "stop" and not await self._holds(request.stop, ids):
                ids = ids[:-1]  # the template's end of turn, or another of the model's: parsers take it for text
            if not ids:
                return {"role": "assistant", "content": ""}
            try:
                found = await self._parser.parse(self._chat_request(request), ids, sampled.finish_reason)
            except RouteRefused as error:
                if error.status not in (400, 500) or _PARSER_OPTION in error.detail:
                    raise
                # The policy wrote what the server cannot answer with, as half a surrogate, or what its parser of tool
                # calls fails at: the agent gets it as text.
                found = {"content": await self._codec.text(ids)}
        message: Message = {"role": "assistant", "content": found.get("content")}
        if found.get("reasoning"):
            message["reasoning"] = found["reasoning"]
        if calls := found.get("tool_calls"):
            message["tool_calls"] = calls if request.parallel else calls[:1]
        return message

    async def _holds(self, stop: Sequence[str], ids: Sequence[int]) -> bool:
        """Whether a reply contains one of the stop texts."""
        if not stop or ids[-1] in self.server.stop_token_ids:
            return False
        text = await self._codec.text(ids)
        return any(one in text for one in stop)


def _renderable(message: Message) -> Message:
    """The message with valid JSON in the arguments of tool calls, which a policy or a parser may have broken."""
    calls = [
        (call["id"], call["function"]["name"], call["function"]["arguments"])
        for call in message.get("tool_calls") or ()
    ]
    if all(json_object(arguments) is not None for _, _, arguments in calls):
        return message
    sound = [(name, function, json.dumps(as_object(arguments))) for name, function, arguments in calls]
    return message | {"tool_calls": [function_call(*call) for call in sound]}


def _added(blocks: list[Block], delta: dict[str, Any], parallel: bool) -> Iterator[tuple[Block, str]]:
    """(block, added text) of a part; appends new blocks to ``blocks``. parallel: see ``ModelRequest``."""
    kinds: tuple[tuple[Literal["thought", "text"], str], ...] = (("thought", "reasoning"), ("text", "content"))
    for kind, name in kinds:
        if text := delta.get(name):
            if not blocks or blocks[-1].kind != kind:
                blocks.append(Block(kind))
            yield blocks[-1], text
    for call in delta.get("tool_calls") or ():
        function, calls = call.get("function") or {}, [block for block in blocks if block.kind == "call"]
        if call["index"] == len(calls) and (parallel or not calls):
            calls.append(Block("call", "", call["id"], function["name"]))
            blocks.append(calls[-1])
        if call["index"] < len(calls):
            yield calls[call["index"]], function.get("arguments") or ""


@contextmanager
def _refusals(server: PolicyClient) -> Iterator[None]:
    """Convert RouteRefused: RequestRefused for invalid requests of the agent, PolicyUnavailable otherwise."""
    try:
        yield
    except RouteRefused as error:
        if _PARSER_OPTION in error.detail:
            raise PolicyUnavailable(
                f"{server.endpoint} cannot parse tool calls: set serving.tool_parser, or start that vLLM with "
                f"--enable-auto-tool-choice and {_PARSER_OPTION}"
            ) from error
        if error.status != 400:
            raise PolicyUnavailable(
                f"{error}. Agents need vLLM 0.28, 0.29, or a newer one with --enable-scale-out, and a proxy that "
                f"forwards all of /v1/ and {DETOKENIZE_ROUTE}"
            ) from error
        too_long = "context_length_exceeded" if "maximum context length" in error.detail else None
        raise RequestRefused(error.detail, code=too_long, param="messages") from error


def _tools(request: ModelRequest) -> dict[str, Any]:
    if not request.tools:
        return {}
    return {"tools": list(request.tools), "tool_choice": "auto" if request.use_tools else "none"}
