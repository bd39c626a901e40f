"""Which conversation a call goes on with: an actor's calls of one attempt, kept as growing sequences of token ids.

Agents send a whole conversation with every call. One that repeats an earlier call's messages, its reply and the tools
gets that call's tokens as they were, and only what is new is encoded: the calls make one sequence. Whatever else an
agent does is no continuation and begins a new one: a rewritten or trimmed history, a sub-agent with a system prompt of
its own, other tools. A retry, or a branch off an earlier point, gets the tokens up to there as they were, as a prompt
of its own, so that nothing is trained on twice.
"""

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from runners.agents.gateway.requests import Message


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
    """Where a conversation stood within a timeline, before a reply or after it.

    length: token ids up to there. call_ids: of the reply's tool calls.
    """

    timeline: Timeline
    length: int
    call_ids: tuple[str, ...] = ()

    @property
    def is_open(self) -> bool:
        """Whether a call may extend the timeline from here."""
        return not self.timeline.claimed and self.length == len(self.timeline.ids)


@dataclass(frozen=True, eq=False)
class Place:
    """Where a call stands. Give it back with ``Timelines.extend`` or ``Timelines.release``.

    known: token ids that go before what is encoded anew; empty where the conversation is new.
    messages: how many of the call's messages ``known`` holds.
    answered: whether ``known`` ends with a reply; else it is a whole prompt, of a call that is repeated.
    timeline: the sequence that ends with ``known``, claimed for this call; None where the call begins one.
    """

    known: tuple[int, ...]
    messages: int
    answered: bool
    digests: tuple[bytes, ...]
    timeline: Timeline | None = None


class Timelines:
    """The conversations of one actor in one attempt."""

    def __init__(self) -> None:
        self._replies: dict[bytes, list[_Point]] = defaultdict(list)
        self._prompts: dict[bytes, list[_Point]] = defaultdict(list)
        self.count = 0
        """Sequences so far."""

    def place(self, start: Any, messages: Sequence[Message]) -> Place:
        """Find what a call goes on with, and claim it.

        start: what must be equal for a conversation to be the same besides its messages (JSON): tools, template.
        """
        digests = tuple(_digests(start, messages))
        asked_before = self._prompts.get(digests[-1])
        replies = [number + 1 for number, message in enumerate(messages) if message["role"] == "assistant"]
        for held in reversed(replies):
            points = self._replies.get(digests[held - 1])
            if not points:
                continue
            echoed = _call_ids(messages[held - 1])
            best = max(enumerate(points), key=lambda item: (item[1].call_ids == echoed, item[1].is_open, item[0]))[1]
            # Conversations may read alike: one that can be extended goes on, before another's call counts as repeated.
            if best.is_open and (held == replies[-1] or not asked_before):
                best.timeline.claimed = True
                return Place(tuple(best.timeline.ids), held, True, digests, best.timeline)
            if asked_before:
                break
            return Place(tuple(best.timeline.ids[: best.length]), held, True, digests)
        if asked_before:
            point = asked_before[-1]
            return Place(tuple(point.timeline.ids[: point.length]), len(messages), False, digests)
        return Place((), 0, False, digests)

    def release(self, place: Place) -> Place:
        """The call came to nothing, or does not go on from there after all: then it begins where this says."""
        if place.timeline is not None:
            place.timeline.claimed = False
        return Place((), 0, False, place.digests)

    def extend(self, place: Place, new_ids: Sequence[int], response_ids: Sequence[int], reply: Message) -> Timeline:
        """The call was answered. Returns the sequence that it has become part of.

        new_ids: prompt tokens after what the place's timeline holds; the whole prompt where it has none. reply: as the
        agent is given it.
        """
        timeline = place.timeline
        if timeline is None:
            timeline = Timeline(self.count)
            self.count += 1
        timeline.ids += new_ids
        self._prompts[place.digests[-1]].append(_Point(timeline, len(timeline.ids)))
        timeline.ids += response_ids
        after = _chained(place.digests[-1], reply)
        self._replies[after].append(_Point(timeline, len(timeline.ids), _call_ids(reply)))
        timeline.claimed = False
        return timeline


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
    try:
        return json.loads(text)
    except ValueError:
        return text


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
