"""Append-only conversations for chat templates that may rewrite earlier turns.

New messages are rendered in a separate conversation after a placeholder reply; the tokens after that reply are
appended to the sampled ones.
"""

import json
from collections.abc import Sequence

from runners.policy.codecs import Codec, Message, UnusableTemplate

# New messages are rendered after this question and one of these replies.
_QUESTION = {"role": "user", "content": "?"}
_REPLIES = ("A", "B")


class ChatTemplate:
    """One chat template; made by ``of``. Methods raise the codec's errors.

    end_of_turn: the token that ends a reply. before: number of tokens that the template writes between a reply and it.
    """

    def __init__(self, codec: Codec, end_of_turn: int, before: int):
        self.end_of_turn = end_of_turn
        self._before = before
        self._codec = codec
        self._heads: dict[tuple[int, tuple[str, ...]], tuple[int, int]] = {}  # calls, roles of new messages -> ``_cut``

    @classmethod
    async def of(cls, codec: Codec) -> "ChatTemplate":
        """Raises UnusableTemplate if no token ends a reply."""
        one, other = [await codec.render(_replied(text, (), ()), add_generation_prompt=False) for text in _REPLIES]
        for before, token in enumerate(one[len(one) - _common_ending(one, other) :]):
            if (await codec.text([token])).strip():
                return cls(codec, token, before)
        raise UnusableTemplate("the chat template has no token that ends a reply")

    async def after_reply(
        self, last_id: int | None, new: Sequence[Message], calls: Sequence[Message] = ()
    ) -> list[int]:
        """Token ids that follow a sampled reply: the end of its turn, the new messages, the next turn's head.

        last_id: the reply's last token; the end of turn is not repeated. calls: the reply's tool calls that are
        answered by the new messages. Raises UnusableTemplate where the template has no end of the reply before these.
        """
        shape = (len(calls), tuple(message["role"] for message in new))
        ids = await self._codec.render(_replied(_REPLIES[0], calls, new))
        if shape not in self._heads:
            other = await self._codec.render(_replied(_REPLIES[1], calls, new))
            found = _cut(ids, other, self.end_of_turn)
            # It may move system messages to the beginning, or write results of tools before it ends the turn.
            changed = [{**message, "content": "!" if message.get("content") == "?" else "?"} for message in new]
            start = self._place(ids, found[0]) + 1
            if (await self._codec.render(_replied(_REPLIES[0], calls, changed)))[:start] != ids[:start]:
                raise UnusableTemplate("the chat template writes new messages before the end of a reply")
            self._heads[shape] = found
        count, before = self._heads[shape]
        if calls:  # counted from within a placeholder call
            before = self._before
        cut = self._place(ids, count)
        return ids[cut + 1 :] if last_id == self.end_of_turn else ids[cut - before :]

    def _place(self, ids: Sequence[int], count: int) -> int:
        """The place of an end of turn, counted from 1."""
        return [place for place, token in enumerate(ids) if token == self.end_of_turn][count - 1]


def _replied(text: str, calls: Sequence[Message], new: Sequence[Message]) -> list[Message]:
    """A conversation with a placeholder reply before the new messages, with the tool calls that they answer.

    The calls' arguments are placeholders: the policy's own may be invalid JSON, which templates reject.
    """
    reply: dict[str, object] = {"role": "assistant", "content": text}
    if calls:
        arguments = json.dumps({"of": text})
        reply["tool_calls"] = [
            {**call, "function": {"name": call["function"]["name"], "arguments": arguments}} for call in calls
        ]
    return [_QUESTION, reply, *new]


def _cut(one: Sequence[int], other: Sequence[int], end: int) -> tuple[int, int]:
    """The end of the reply in which two renderings differ: (ends of turns up to it, tokens before the last one)."""
    start = len(one) - _common_ending(one, other)
    for place in range(start, len(one)):
        if one[place] == end:
            return sum(token == end for token in one[: place + 1]), place - start
    raise UnusableTemplate("cannot find the end of a reply before new messages")


def _common_ending(one: Sequence[int], other: Sequence[int]) -> int:
    """Length of the common suffix. Raises UnusableTemplate if both are equal: the template drops replies."""
    for length, (a, b) in enumerate(zip(reversed(one), reversed(other), strict=False)):
        if a != b:
            return length
    raise UnusableTemplate("the chat template drops replies")
