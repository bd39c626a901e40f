"""A conversation that only grows, by a chat template that may rewrite what came before.

New messages are rendered in a conversation of their own, after a stand-in reply; what follows the end of that reply is
appended to what was sampled.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from runners.policy.codecs import Codec, Message, UnfitTemplate

# New messages are rendered after this question and one of these replies.
_QUESTION = {"role": "user", "content": "?"}
_REPLIES = ("A", "B")


class ChatTemplate:
    """One chat template, with what is known of it from earlier use.

    ``variables`` of all methods are the template's, such as ``enable_thinking``. All raise what the codec raises.
    """

    def __init__(self, codec: Codec):
        self._codec = codec
        self._ends: dict[str, int] = {}  # by the variables: the token that ends a reply
        self._heads: dict[tuple[str, int, str], tuple[int, int]] = {}  # of new messages: see ``_cut``

    async def end_of_turn(self, variables: Mapping[str, Any]) -> int:
        """The token that ends a reply. Raises UnfitTemplate where there is none."""
        key = json.dumps(variables, sort_keys=True)
        if key not in self._ends:
            one, other = [await self.answered(text, variables) for text in _REPLIES]
            for token in one[len(one) - _common_ending(one, other) :]:
                if (await self._codec.text([token])).strip():
                    self._ends[key] = token
                    break
            else:
                raise UnfitTemplate("the chat template marks the end of a reply with no token")
        return self._ends[key]

    async def answered(self, reply: str, variables: Mapping[str, Any]) -> list[int]:
        """Token ids of a question and a reply to it."""
        messages = [_QUESTION, {"role": "assistant", "content": reply}]
        return await self._codec.render(messages, variables, add_generation_prompt=False)

    async def after_reply(
        self, last_id: int | None, new: Sequence[Message], variables: Mapping[str, Any], calls: Sequence[Message] = ()
    ) -> list[int]:
        """Token ids that follow a sampled reply: the end of its turn, the new messages, the next turn's head.

        last_id: the reply's last token; the end of turn is not repeated. calls: the reply's tool calls that are
        answered by the new messages. Raises UnfitTemplate where the end of the reply cannot be found before these.
        """
        end = await self.end_of_turn(variables)
        shape = (json.dumps(variables, sort_keys=True), len(calls), new[0]["role"] if new else "")
        ids = await self._codec.render(_replied(_REPLIES[0], calls, new), variables)
        if shape not in self._heads:
            other = await self._codec.render(_replied(_REPLIES[1], calls, new), variables)
            self._heads[shape] = _cut(ids, other, end)
        count, before = self._heads[shape]
        cut = [place for place, token in enumerate(ids) if token == end][count - 1]
        return ids[cut + 1 :] if last_id == end else ids[cut - before :]


def _replied(text: str, calls: Sequence[Message], new: Sequence[Message]) -> list[Message]:
    """A conversation in which a reply stands before the new messages: with the tool calls that they answer.

    The calls' arguments are made up: a policy's own may be no JSON, which no template takes.
    """
    reply: dict[str, Any] = {"role": "assistant", "content": text}
    if calls:
        arguments = json.dumps({"of": text})
        reply["tool_calls"] = [
            {
                "id": call.get("id"),
                "type": "function",
                "function": {"name": call["function"]["name"], "arguments": arguments},
            }
            for call in calls
        ]
    return [_QUESTION, reply, *new]


def _cut(one: Sequence[int], other: Sequence[int], end: int) -> tuple[int, int]:
    """Where the reply ends in which two renderings differ: (ends of turns up to there, tokens before the last)."""
    start = len(one) - _common_ending(one, other)
    for place in range(start, len(one)):
        if one[place] == end:
            return sum(token == end for token in one[: place + 1]), place - start
    raise UnfitTemplate("the end of a reply is not to be found before new messages")


def _common_ending(one: Sequence[int], other: Sequence[int]) -> int:
    """Length of what both end with. UnfitTemplate when they are equal: what should differ was dropped."""
    for length, (a, b) in enumerate(zip(reversed(one), reversed(other), strict=False)):
        if a != b:
            return length
    raise UnfitTemplate("the chat template drops replies")
