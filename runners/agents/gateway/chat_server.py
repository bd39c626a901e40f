"""One vLLM as the gateway uses it: renders messages to token ids, samples, and parses what it sampled.

Messages are rendered here where that gives what the server would make of them (``runners.agents.gateway.rendering``).
Everything below ``/v1/``, but for the tokenizer's routes that runners use anyway, and through ``PolicyServer``, so that
versions, patience and restarts are those of every other call of a policy.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from runners.agents.gateway.rendering import LocalRenderer
from runners.agents.gateway.requests import Message, ModelRequest, RequestRefused
from runners.errors import PolicyUnavailable, RouteRefused
from runners.policy.server import Completion, PolicyServer

RENDER_ROUTE, PARSE_ROUTE = "/v1/chat/completions/render", "/v1/chat/completions/derender"
DETOKENIZE_ROUTE = "/detokenize"

# A conversation of its own stands before new messages where they are rendered; the two differ in what a reply says.
_QUESTION: Message = {"role": "user", "content": "?"}
_REPLIES = ("A", "B")


class UnfitTemplate(Exception):
    """New messages cannot be encoded without what came before them; the conversation must be rendered whole."""


class ChatServer:
    """A policy's server, with what was learnt of its chat template.

    thinking: passed to templates that know ``enable_thinking`` or ``thinking``, whatever the agent asks for.
    """

    def __init__(self, server: PolicyServer, thinking: bool):
        self.server = server
        self._thinking = {"enable_thinking": thinking, "thinking": thinking}
        self._ends: dict[str, int] = {}  # by the template's arguments: the token that ends a reply
        self._renderer: LocalRenderer | None = None
        self._heads: dict[tuple[str, int, str], int] = {}  # ends of turns up to that of the reply before new messages

    def template(self, request: ModelRequest) -> dict[str, Any]:
        """Arguments of the chat template for a request."""
        return {**request.template, **self._thinking}

    async def prepare(self) -> None:
        """Learn what ends a reply, before the first one is sampled. Raises PolicyUnavailable."""
        self._renderer = await LocalRenderer.load(Path(await self.server.model_folder()))
        try:
            self.server.stop_token_ids = (await self._end_of_turn(self._thinking),)
        except (UnfitTemplate, RequestRefused) as error:
            raise PolicyUnavailable(f"no agent can be played with {self.server.endpoint}: {error}") from error

    async def first_prompt(self, request: ModelRequest) -> list[int]:
        """Token ids of a whole conversation. Raises RequestRefused for one that the server does not take."""
        return await self._render(request.messages, self.template(request), request)

    async def next_prompt(self, request: ModelRequest, held: int, last_id: int) -> list[int]:
        """Token ids that follow a sampled reply: the end of its turn, the new messages, the next turn's head.

        held: messages of the request up to the reply. last_id: the reply's last token; the end of turn is not repeated.
        Raises UnfitTemplate where they cannot be told apart from what came before, RequestRefused as ``first_prompt``.
        """
        template, new = self.template(request), request.messages[held:]
        end = await self._end_of_turn(template)
        asked = request.messages[held - 1].get("tool_calls") or () if new and new[0]["role"] == "tool" else ()
        shape = (json.dumps(template, sort_keys=True), len(asked), new[0]["role"] if new else "")
        try:
            ids = await self._render(_after_reply(_REPLIES[0], asked, new), template)
            if shape not in self._heads:
                other = await self._render(_after_reply(_REPLIES[1], asked, new), template)
                self._heads[shape] = _ends_before_cut(ids, other, end)
        except RequestRefused as error:
            raise UnfitTemplate(str(error)) from error
        ends = [place for place, token in enumerate(ids) if token == end]
        cut = ends[self._heads[shape] - 1]
        return ids[cut + 1 :] if last_id == end else ids[cut:]

    async def sample(self, prompt: Sequence[int], reply_tokens: int, seed: int, stop: Sequence[str]) -> Completion:
        """One reply. Raises PolicyUnavailable."""
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
                "messages": [_QUESTION],
                "chat_template_kwargs": self.template(request),
                **_tools(request),
            },
        }
        answer = await self._ask(PARSE_ROUTE, body)
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

    async def _render(
        self, messages: Sequence[Message], template: Mapping[str, Any], request: ModelRequest | None = None
    ) -> list[int]:
        body: dict[str, Any] = {"messages": list(messages), "chat_template_kwargs": template}
        if request is not None:
            body |= _tools(request)
        here = self._renderer
        if here is not None and (ids := here.rendered(body)) is not None:
            return ids
        theirs = (await self._ask(RENDER_ROUTE, body))["token_ids"]
        if here is not None:
            here.learn(body, theirs)
        return theirs

    async def _end_of_turn(self, template: Mapping[str, Any]) -> int:
        key = json.dumps(template, sort_keys=True)
        if key not in self._ends:
            one, other = [await self._rendered_reply(text, template) for text in _REPLIES]
            for token in one[len(one) - _common_ending(one, other) :]:
                text = await self._ask(DETOKENIZE_ROUTE, {"tokens": [token]})
                if text["prompt"].strip():
                    self._ends[key] = token
                    return token
            raise UnfitTemplate("the chat template marks the end of a reply with no token")
        return self._ends[key]

    async def _rendered_reply(self, text: str, template: Mapping[str, Any]) -> list[int]:
        body = {
            "messages": [_QUESTION, {"role": "assistant", "content": text}],
            "chat_template_kwargs": template,
            "add_generation_prompt": False,
        }
        return (await self._ask(RENDER_ROUTE, body))["token_ids"]

    async def _ask(self, route: str, body: dict[str, Any]) -> dict[str, Any]:
        """Raises RequestRefused for what the agent asked, PolicyUnavailable for all else that goes wrong."""
        try:
            return await self.server.ask(route, body)
        except RouteRefused as error:
            if error.status != 400:
                raise PolicyUnavailable(
                    f"{error}. Agents need vLLM 0.28 and a proxy that forwards all of /v1/ and {DETOKENIZE_ROUTE}"
                ) from error
            if "--tool-call-parser" in error.detail:
                raise PolicyUnavailable(
                    f"{self.server.endpoint} cannot read tool calls: set serving.tool_parser, or start that vLLM with "
                    f"--enable-auto-tool-choice and --tool-call-parser"
                ) from error
            if "maximum context length" in error.detail:
                raise RequestRefused(error.detail, code="context_length_exceeded", param="messages") from error
            raise RequestRefused(error.detail, param="messages") from error


def _tools(request: ModelRequest) -> dict[str, Any]:
    if not request.tools:
        return {}
    return {"tools": list(request.tools), "tool_choice": "auto" if request.use_tools else "none"}


def _after_reply(text: str, asked: Sequence[Mapping[str, Any]], new: Sequence[Message]) -> list[Message]:
    """A conversation in which a reply stands before the new messages: with the tool calls that they answer.

    The calls' arguments are made up: a policy's own may be no JSON, which no template takes.
    """
    reply: Message = {"role": "assistant", "content": text}
    if asked:
        reply["tool_calls"] = [
            {
                "id": call.get("id"),
                "type": "function",
                "function": {"name": call["function"]["name"], "arguments": json.dumps({"of": text})},
            }
            for call in asked
        ]
    return [_QUESTION, reply, *new]


def _ends_before_cut(one: Sequence[int], other: Sequence[int], end: int) -> int:
    """How many ends of turns there are up to that of the reply in which the two renderings differ."""
    start = len(one) - _common_ending(one, other)
    for place in range(start, len(one)):
        if one[place] == end:
            return sum(token == end for token in one[: place + 1])
    raise UnfitTemplate("the end of a reply is not to be found before new messages")


def _common_ending(one: Sequence[int], other: Sequence[int]) -> int:
    """Length of what both end with. UnfitTemplate when they are equal: what should differ was dropped."""
    for length, (a, b) in enumerate(zip(reversed(one), reversed(other), strict=False)):
        if a != b:
            return length
    raise UnfitTemplate("the chat template drops replies")
