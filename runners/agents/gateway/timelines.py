"""Maps calls to conversations: an actor's calls of one attempt as append-only sequences of token ids.

Agents send a whole conversation with every call. A call that repeats an earlier call's messages, reply and tools
continues its sequence, and only new messages are encoded. Otherwise a new sequence begins: a rewritten or trimmed
history, a sub-agent with its own system prompt, other tools. A branch or a repeated call reuses the tokens up to the
last common reply as a prompt, so that no token is trained on twice.
"""

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from runners.agents.gateway.requests import Message, json_object


@dataclass(eq=False)
class Timeline:
    """One sequence of token ids: prompts and replies as sent and sampled.

    segment: its number within the actor. claimed: a call that may extend it is in progress.
    """

    segment: int
    ids: list[int] = field(default_factory=list)
    claimed: bool = False


@dataclass(frozen=True, eq=False)
class _Point:
    """A position in a timeline after a reply.

    length: token ids up to there. call_ids: of the reply's tool calls.
    """

    timeline: Timeline
    length: int
    call_ids: tuple[str, ...]

    @property
    def is_open(self) -> bool:
        """Whether a call may extend the timeline from here."""
        return not self.timeline.claimed and self.length == len(self.timeline.ids)


@dataclass(frozen=True, eq=False)
class Place:
    """The position of a call.

    known: context ids up to a reply; empty for a new conversation.
    messages: number of the call's messages in ``known``.
    digest: of the whole conversation. timeline: the one that ends with ``known``, claimed for this call, or None.
    """

    known: tuple[int, ...]
    messages: int
    digest: bytes
    timeline: Timeline | None = None


class Timelines:
    """The conversations of one actor in one attempt."""

    def __init__(self) -> None:
        self._replies: dict[bytes, list[_Point]] = defaultdict(list)
        self.count = 0
        """Sequences so far."""

    @contextmanager
    def place(self, start: Any, messages: Sequence[Message]) -> Iterator[Place]:
        """The place of a call, claimed until the call is answered (``extend``) or fails.

        start: what identifies a conversation in addition to its messages (JSON): its tools.
        """
        place = self._find(start, messages)
        if place.timeline is not None:
            place.timeline.claimed = True
        try:
            yield place
        finally:
            if place.timeline is not None:
                place.timeline.claimed = False

    def _find(self, start: Any, messages: Sequence[Message]) -> Place:
        digests = list(_digests(start, messages))
        for held in range(len(messages), 0, -1):
            if points := self._replies.get(digests[held - 1]):
                echoed = _call_ids(messages[held - 1])
                newest_first = reversed(points)  # ``max`` takes the first of equal ones
                best = max(newest_first, key=lambda point: (point.call_ids == echoed, point.is_open))
                known = tuple(best.timeline.ids[: best.length])
                return Place(known, held, digests[-1], best.timeline if best.is_open else None)
        return Place((), 0, digests[-1])

    def extend(
        self, place: Place, known: Sequence[int], new_ids: Sequence[int], response_ids: Sequence[int], reply: Message
    ) -> tuple[Timeline, Sequence[int], Sequence[int]]:
        """Record an answered call. Returns its sequence, the context ids, and the new prompt ids.

        known: of the place, or empty if it could not be used. new_ids: newly encoded. reply: as the agent receives it.
        """
        timeline = place.timeline if known else None
        if timeline is None:  # a branch: its context becomes part of the prompt
            timeline = Timeline(self.count)
            self.count += 1
            known, new_ids = (), [*known, *new_ids]
        timeline.ids += [*new_ids, *response_ids]
        after = _chained(place.digest, reply)
        self._replies[after].append(_Point(timeline, len(timeline.ids), _call_ids(reply)))
        return timeline, known, new_ids


def same_message(message: Message) -> list[Any]:
    """The identity of a message (JSON).

    Ignores ids, reasoning, surrounding white space and the formatting of arguments of replies, which clients change.
    """
    role, content = message["role"], message.get("content") or ""
    if role != "assistant":
        return [role, content, message.get("name")]
    calls = [[call["function"]["name"], _arguments(call)] for call in message.get("tool_calls") or ()]
    return [role, content.strip(), calls]


def _arguments(call: Mapping[str, Any]) -> Any:
    text = call["function"].get("arguments") or "{}"
    return text if json_object(text) is None else json.loads(text, parse_float=_number)


def _number(text: str) -> float | int:
    """JavaScript writes 1.0 as 1."""
    value = float(text)
    return int(value) if value.is_integer() else value


def _call_ids(message: Message) -> tuple[str, ...]:
    return tuple(str(call.get("id")) for call in message.get("tool_calls") or ())


def _digests(start: Any, messages: Sequence[Message]) -> Iterator[bytes]:
    """One for each prefix of the conversation, the shortest first."""
    digest = hashlib.blake2b(json.dumps(start, sort_keys=True).encode(), digest_size=16).digest()
    for message in messages:
        digest = _chained(digest, message)
        yield digest


def _chained(digest: bytes, message: Message) -> bytes:
    return hashlib.blake2b(digest + json.dumps(same_message(message), sort_keys=True).encode(), digest_size=16).digest()
