"""The spans of every workload: one per model call, one per finished rollout.

A call's span has only the tokens that are new since the actor's previous call: joined, the calls of a segment give the
exact sampled sequence. Token ids and log-probs are base64 of little-endian uint32 and float32 arrays: exact, a tenth of
the JSON text, and without non-finite numbers, which would break a query.

A workload adds fields in subclasses (``store.werewolf``), and lists both in a ``TaskKind``.
"""

import base64
import hashlib
import json
import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from store.protocol import AGL_ANNOTATION, REWARD_ATTRIBUTE, Attributes, Span
from store.strict import Strict

_PACKED: Mapping[str, Literal["I", "f"]] = {"prompt_ids": "I", "response_ids": "I", "logprobs": "f"}


class MalformedSpan(ValueError):
    """A span of ours that cannot be decoded; the message names the span and the field."""


def context_digest(token_ids: Sequence[int]) -> str:
    """Digest of the token ids before a turn's new prompt, to detect a broken join."""
    return hashlib.blake2b(struct.pack(f"<{len(token_ids)}I", *token_ids), digest_size=8).hexdigest()


class SpanRecord(Strict):
    """The content of a span of ours.

    Class attributes: span_name; prefix, of the attributes' names; kind, the value of the attribute ``<prefix>span``,
    distinct for each record type; json_fields, encoded as JSON text; task_field, the field with the task's id.
    """

    span_name: ClassVar[str]
    prefix: ClassVar[str]
    kind: ClassVar[str]
    json_fields: ClassVar[tuple[str, ...]] = ()
    task_field: ClassVar[str] = "task_id"

    @property
    def task(self) -> str:
        """Id of the task, unique within its run."""
        return getattr(self, self.task_field)

    @classmethod
    def is_in(cls, span: Span) -> bool:
        """Whether the span has such a record."""
        return span.name == cls.span_name and span.attributes.get(f"{cls.prefix}span") == cls.kind

    def encode(self) -> Attributes:
        """Span attributes: flat, without None, valid in any store."""
        apart = {*_PACKED, *self.json_fields}
        attributes: Attributes = {
            self.prefix + name: value for name, value in self.model_dump(exclude=apart, exclude_none=True).items()
        }
        attributes[f"{self.prefix}span"] = self.kind
        as_json = self.model_dump(include=set(self.json_fields))
        attributes |= {self.prefix + name: json.dumps(as_json[name]) for name in self.json_fields}
        return attributes

    @classmethod
    def decode(cls, span: Span) -> Self:
        """Read the record from a stored span; raises MalformedSpan."""
        where = f"span {span.span_id} ({span.name}) of rollout {span.rollout_id}, attempt {span.attempt_id}"
        prefix = cls.prefix
        fields: dict[str, Any] = {
            name: span.attributes[prefix + name] for name in cls.model_fields if prefix + name in span.attributes
        }
        packed = [name for name in _PACKED if name in cls.model_fields]
        for name in (*packed, *cls.json_fields):
            if not isinstance(fields.get(name), str):
                raise MalformedSpan(f"{where}: attribute {prefix + name} is missing or not text")
            try:
                fields[name] = _unpack(fields[name], _PACKED[name]) if name in _PACKED else json.loads(fields[name])
            except (ValueError, RecursionError, struct.error) as error:  # RecursionError: nested too deeply
                raise MalformedSpan(f"{where}: attribute {prefix + name}: {error}") from error
        try:
            return cls.model_validate(fields)
        except ValueError as error:
            raise MalformedSpan(f"{where}: {error}") from error


class CallSpan(SpanRecord):
    """One model call of one actor: a seat, an agent of a team.

    turn: number of this call among the actor's calls of the rollout, from 0.
    segment: number of the actor's growing sequence, from 0; a new one begins where the conversation is not continued.
    policy: that replied. policy_version: of the weights that sampled this turn; other turns may have newer ones. 0 for
        a frozen policy, unless its server reports another.
    learner: the learning policy that sampled it, if the run has several (``store.endpoints.ServedPolicy``); else None.
    version_until: version of weights that were loaded during this turn, for its last tokens; ``policy_version`` is that
        of its first ones. Else None.
    trainable: whether it is for training.
    valid: whether the reply is usable. error: the reason if not; None when valid.
    context_tokens: length of the segment before this turn; 0 for a segment's first turn.
    context_digest: ``context_digest`` of exactly those tokens.
    prompt_ids: token ids added to the segment as this turn's prompt.
    response_ids: token ids sampled; logprobs align with them one to one, natural logarithm, at the
        sampling temperature, as the server returned them.
    finish_reason: "stop" when the end-of-turn token was sampled, "length" when cut at the limit.
    reply: the text of ``response_ids``; thought: its part between <think> tags.
    """

    kind: ClassVar[str] = "turn"

    turn: int = Field(ge=0)
    segment: int = Field(ge=0)
    policy: str
    learner: str | None = None
    policy_version: int = Field(ge=0)
    version_until: int | None = Field(None, ge=0)
    trainable: bool
    valid: bool
    error: str | None = None
    context_tokens: int = Field(ge=0)
    context_digest: str
    prompt_ids: tuple[int, ...]
    response_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: str
    reply: str
    thought: str = ""

    @property
    def newest_version(self) -> int:
        """Version of the newest weights that may have sampled one of its tokens."""
        return self.policy_version if self.version_until is None else self.version_until

    @property
    def actor(self) -> str:
        """Name of the actor, unique within the rollout; a sequence belongs to one actor."""
        raise NotImplementedError

    @property
    def card(self) -> tuple[str, str]:
        """The actor's role and side, for ``PolicyResources.policy_of``."""
        return self.actor, self.actor

    @property
    def question(self) -> str:
        """Kind of decision; turns of one kind are compared with each other. Empty: all turns are of one kind."""
        return ""

    @model_validator(mode="after")
    def _streams_align(self) -> Self:
        where = f"{self.task}, {self.actor}, turn {self.turn}"
        if len(self.response_ids) != len(self.logprobs):
            raise ValueError(f"{where}: {len(self.response_ids)} sampled tokens but {len(self.logprobs)} log-probs")
        if not self.prompt_ids:
            raise ValueError(f"{where}: a turn without a prompt")
        if not all(math.isfinite(value) for value in self.logprobs):
            raise ValueError(f"{where}: a log-prob is not finite")
        return self

    def encode(self) -> Attributes:
        """As ``SpanRecord.encode``, with token ids and log-probs packed."""
        packed = {self.prefix + name: _pack(getattr(self, name), code) for name, code in _PACKED.items()}
        return super().encode() | packed


class OutcomeSpan(SpanRecord):
    """The outcome of one finished rollout: an agentlightning reward annotation plus the workload's facts.

    group_id: of rollouts with the same task. policy_version: for which the task was enqueued.
    turns: number of the attempt's call spans, to detect a missing one.
    transcript: of the whole rollout, for people.
    """

    span_name: ClassVar[str] = AGL_ANNOTATION
    kind: ClassVar[str] = "result"

    group_id: str
    policy_version: int
    turns: int
    transcript: str

    @property
    def summary(self) -> str:
        """The outcome in a few words, for the runner's log."""
        raise NotImplementedError

    def as_data(self, calls: Sequence[CallSpan]) -> dict[str, Any] | None:
        """The rollout as JSON data; None for a workload with transcripts only. calls: all its calls."""
        return None

    def check_note(self, note: "NoteSpan") -> None:
        """Raise MalformedSpan for a note about what the rollout does not have."""

    @property
    def own_failure(self) -> str:
        """The agent's own error; empty for none."""
        return ""

    @property
    def actor_names(self) -> frozenset[str]:
        """The actors that may have calls."""
        raise NotImplementedError

    def rewards(self) -> dict[str, float]:
        """Reward dimensions by name, for ``find_final_reward``; the first is the primary one."""
        raise NotImplementedError

    def encode(self) -> Attributes:
        """As ``SpanRecord.encode``, with the rewards in agentlightning's format."""
        attributes = super().encode()
        for index, (name, value) in enumerate(self.rewards().items()):
            attributes[f"{REWARD_ATTRIBUTE}.{index}.name"] = name
            attributes[f"{REWARD_ATTRIBUTE}.{index}.value"] = value
        return attributes


class NoteSpan(SpanRecord):
    """Optional records of a finished rollout, stored after its calls and its outcome."""


@dataclass(frozen=True)
class TaskKind:
    """One workload: its tasks' ``kind``, its types of spans, and its runner.

    runner: a module with its required options. note: None without one.
    """

    name: str
    call: type[CallSpan]
    outcome: type[OutcomeSpan]
    runner: str
    note: type[NoteSpan] | None = None


def to_span(
    record: SpanRecord,
    *,
    rollout_id: str,
    attempt_id: str,
    sequence_id: int,
    start_time: float,
    end_time: float,
) -> Span:
    """Wrap a record as a span of one attempt.

    (rollout, attempt, sequence) determine the trace and span ids, so that uploads are idempotent in any store. Times:
    seconds since the epoch. Raises MalformedSpan for an integer that no span can hold.
    """
    trace_id = hashlib.blake2b(f"{rollout_id}/{attempt_id}".encode(), digest_size=16).hexdigest()
    span_id = hashlib.blake2b(f"{rollout_id}/{attempt_id}/{sequence_id}".encode(), digest_size=8).hexdigest()
    return Span(
        name=record.span_name,
        attributes={name: _storable(name, value) for name, value in record.encode().items()},
        rollout_id=rollout_id,
        attempt_id=attempt_id,
        sequence_id=sequence_id,
        trace_id=trace_id,
        span_id=span_id,
        start_time=start_time,
        end_time=end_time,
    )


def _storable(name: str, value: Any) -> Any:
    """A value that OTLP can encode: text without lone surrogates, which models and agents write as JSON escapes."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise MalformedSpan(f"{name} is {value}, which has more than 64 bits")
    return value


def _pack(values: Sequence[int] | Sequence[float], code: Literal["I", "f"]) -> str:
    return base64.b64encode(struct.pack(f"<{len(values)}{code}", *values)).decode("ascii")


def _unpack(text: str, code: Literal["I", "f"]) -> list[Any]:
    return [value for (value,) in struct.iter_unpack(f"<{code}", base64.b64decode(text, validate=True))]
