"""The chat template of a policy's server: from messages to token ids, by vLLM's own render route.

A template is a program that somebody else wrote: it runs on the server, never here. A conversation only grows: new
messages are rendered in a conversation of their own, after a stand-in reply, and what follows the end of that reply is
appended to what was sampled.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from runners.policy.chat_tokens import UnfitTemplate
from runners.policy.server import PolicyServer

RENDER_ROUTE, DETOKENIZE_ROUTE = "/v1/chat/completions/render", "/detokenize"

# New messages are rendered after this question and one of these replies.
_QUESTION = {"role": "user", "content": "?"}
_REPLIES = ("A", "B")

Message = Mapping[str, Any]


class Renderer(Protocol):
    """Renders on this machine the conversations of which the server is known to make the same token ids."""

    def rendered(self, body: Mapping[str, Any]) -> list[int] | None:
        """Token ids for a request of the render route; None where the server has to render it."""

    def learn(self, body: Mapping[str, Any], theirs: Sequence[int]) -> None:
        """Compare the server's token ids for a request with our own."""


class ServedTemplate:
    """One server's chat template, with what is known of it from earlier requests.

    local: saves requests where it can. ``variables`` of all methods are the template's, such as ``enable_thinking``.
    All methods raise RouteRefused and PolicyUnavailable, as ``PolicyServer.ask``.
    """

    def __init__(self, server: PolicyServer, local: Renderer | None = None):
        self._server = server
        self._local = local
        self._ends: dict[str, int] = {}  # by the variables: the token that ends a reply
        self._heads: dict[tuple[str, int, str], int] = {}  # ends of turns up to that of the reply before new messages

    async def render(self, messages: Sequence[Message], variables: Mapping[str, Any], **more: Any) -> list[int]:
        """Token ids of a conversation. more: of the render route, such as tools."""
        body = {"messages": list(messages), "chat_template_kwargs": variables, **more}
        if self._local is not None and (ids := self._local.rendered(body)) is not None:
            return ids
        theirs = (await self._server.ask(RENDER_ROUTE, body))["token_ids"]
        if self._local is not None:
            self._local.learn(body, theirs)
        return theirs

    async def text(self, token_ids: Sequence[int]) -> str:
        """Token ids as text, control tokens included."""
        return (await self._server.ask(DETOKENIZE_ROUTE, {"tokens": list(token_ids)}))["prompt"]

    async def end_of_turn(self, variables: Mapping[str, Any]) -> int:
        """The token that ends a reply. Raises UnfitTemplate where there is none."""
        key = json.dumps(variables, sort_keys=True)
        if key not in self._ends:
            one, other = [await self.answered(text, variables) for text in _REPLIES]
            for token in one[len(one) - _common_ending(one, other) :]:
                if (await self.text([token])).strip():
                    self._ends[key] = token
                    break
            else:
                raise UnfitTemplate("the chat template marks the end of a reply with no token")
        return self._ends[key]

    async def answered(self, reply: str, variables: Mapping[str, Any]) -> list[int]:
        """Token ids of a question and a reply to it."""
        messages = [_QUESTION, {"role": "assistant", "content": reply}]
        return await self.render(messages, variables, add_generation_prompt=False)

    async def after_reply(
        self, last_id: int | None, new: Sequence[Message], variables: Mapping[str, Any], calls: Sequence[Message] = ()
    ) -> list[int]:
        """Token ids that follow a sampled reply: the end of its turn, the new messages, the next turn's head.

        last_id: the reply's last token; the end of turn is not repeated. calls: the reply's tool calls that are
        answered by the new messages. Raises UnfitTemplate where the end of the reply cannot be found before these.
        """
        end = await self.end_of_turn(variables)
        shape = (json.dumps(variables, sort_keys=True), len(calls), new[0]["role"] if new else "")
        ids = await self.render(_replied(_REPLIES[0], calls, new), variables)
        if shape not in self._heads:
            other = await self.render(_replied(_REPLIES[1], calls, new), variables)
            self._heads[shape] = _ends_before_cut(ids, other, end)
        cut = [place for place, token in enumerate(ids) if token == end][self._heads[shape] - 1]
        return ids[cut + 1 :] if last_id == end else ids[cut:]


def _replied(text: str, calls: Sequence[Message], new: Sequence[Message]) -> list[Message]:
    """A conversation in which a reply stands before the new messages: with the tool calls that they answer.

    The calls' arguments are made up: a policy's own may be no JSON, which no template takes.
    """
    reply: dict[str, Any] = {"role": "assistant", "content": text}
    if calls:
        reply["tool_calls"] = [
            {
                "id": call.get("id"),
                "type": "function",
                "function": {"name": call["function"]["name"], "arguments": json.dumps({"of": text})},
            }
            for call in calls
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
