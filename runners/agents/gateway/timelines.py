"""Which conversation a call goes on with: an actor's calls of one attempt, kept as growing sequences of token ids.

Agents send a whole conversation with every call. One that repeats an earlier call's messages, its reply and the tools
gets that call's tokens as they were, and only what is new is encoded: the calls make one sequence. Whatever else an
agent does is no continuation and begins a new one: a rewritten or trimmed history, a sub-agent with a system prompt of
its own, other tools. A branch off an earlier point, or a call that is made again, gets the tokens up to the last reply
as they were, as a prompt of its own, so that nothing is trained on twice.
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
    """One sequence of token ids: prompts and replies as they were sent and sampled.

    segment: its number within the actor's. claimed: a call that may extend it is under way.
    """

    segment: int
    ids: list[int] = field(default_factory=list)
    claimed: bool = False


@dataclass(frozen=True, eq=False)
class _Point:
    """Where a conversation stood within a timeline, after a reply.

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
    """Where a call stands.

    known: token ids that go before what is encoded anew, up to a reply; empty where the conversation is new.
    messages: how many of the call's messages ``known`` holds.
    digest: of the whole conversation. timeline: that ends with ``known``, claimed for this call, if there is one.
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
        """What a call goes on with, claimed until the call has been answered (``extend``) or has come to nothing.

        start: what must be equal for a conversation to be the same besides its messages (JSON): its tools.
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
                newest_first = reversed(points)  # of equal ones ``max`` takes the first
                best = max(newest_first, key=lambda point: (point.call_ids == echoed, point.is_open))
                known = tuple(best.timeline.ids[: best.length])
                return Place(known, held, digests[-1], best.timeline if best.is_open else None)
        return Place((), 0, digests[-1])

    def extend(
        self, place: Place, known: Sequence[int], new_ids: Sequence[int], response_ids: Sequence[int], reply: Message
    ) -> tuple[Timeline, Sequence[int], Sequence[int]]:
        """The call was answered. Returns the sequence that it is part of, what that held, and the prompt after it.

        known: the place's, or none where it could not be used. new_ids: encoded anew. reply: as the agent gets it.
        """
        timeline = place.timeline if known else None
        if timeline is None:  # a branch, or what could not be appended: its past is given anew, as its prompt
            timeline = Timeline(self.count)
            self.count += 1
            known, new_ids = (), [*known, *new_ids]
        timeline.ids += [*new_ids, *response_ids]
        after = _chained(place.digest, reply)
        self._replies[after].append(_Point(timeline, len(timeline.ids), _call_ids(reply)))
        return timeline, known, new_ids


def same_message(message: Message) -> list[Any]:
    """What must be equal in a message for it to count as repeated (JSON).

    Of a reply not its ids, its reasoning or the white space around it, nor how its arguments are written: clients
    change these, or drop them.
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
    """One for each beginning of the conversation, the shortest first."""
    digest = hashlib.blake2b(json.dumps(start, sort_keys=True).encode(), digest_size=16).digest()
    for message in messages:
        digest = _chained(digest, message)
        yield digest


def _chained(digest: bytes, message: Message) -> bytes:
    return hashlib.blake2b(digest + json.dumps(same_message(message), sort_keys=True).encode(), digest_size=16).digest()
