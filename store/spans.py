"""The two spans a game writes: one per model turn, one per finished game.

Encode and decode stand side by side so that they cannot drift apart. A turn span carries only what
is new since the seat's previous turn: joining the turns of a segment gives the exact token sequence
that was sampled. Token ids and log-probs travel as base64 of little-endian uint32 and float32
arrays: exact, a tenth of the JSON text, and unable to poison a query with a non-finite number.
"""

import base64
import hashlib
import json
import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Annotated, Any, Literal, Self, TypeVar

from agentlightning import Span
from agentlightning.semconv import AGL_ANNOTATION, LightningSpanAttributes, RewardAttributes
from agentlightning.types.tracer import Attributes
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

TURN_SPAN = "werewolf.turn"
_PREFIX = "werewolf."
_SPAN_KIND = _PREFIX + "span"

Record = TypeVar("Record", bound=BaseModel)


class MalformedSpan(ValueError):
    """A span that claims to be ours and cannot be read; the message names the span and the field."""


@dataclass(frozen=True, slots=True)
class TurnFact:
    """One measurement of a reply. neutral: its value where there is nothing to measure. All are 0.0 to ``highest``."""

    meaning: str
    neutral: float = 0.0
    highest: float = 1.0


TURN_FACTS: Mapping[str, TurnFact] = {
    "invalid": TurnFact("1.0 when the reply could not be used"),
    "reask": TurnFact("1.0 when the call repeats a question"),
    "cut": TurnFact("1.0 when the reply ended at its token limit"),
    "speech_chars": TurnFact("characters of what was said aloud, before the game's limit", highest=math.inf),
    "overlong": TurnFact("1.0 when the speech passed the game's limit, so that its end was not heard"),
    "chinese_share": TurnFact("share of the speech's letters that are Chinese characters", neutral=1.0),
    "repetition": TurnFact("how much the speech repeats itself: the share of its 4-character runs that came before"),
    "repeats_earlier": TurnFact("share of the speech's 4-character runs that the seat said in earlier speeches"),
    "identity_leak": TurnFact("1.0 when a public speech gives the wolves away, or prints the system prompt"),
    "vote_against_enemy": TurnFact("1.0 when a vote to exile is cast against a seat of the other side"),
}
"""What runners measure of every reply. Facts of a speech are neutral where nothing usable was said aloud."""

NEUTRAL_FACTS: Mapping[str, float] = {name: fact.neutral for name, fact in TURN_FACTS.items()}


def _known_and_in_range(facts: dict[str, float]) -> dict[str, float]:
    for name, value in facts.items():
        if name not in TURN_FACTS:
            raise ValueError(f"unknown fact {name!r}; known: {', '.join(TURN_FACTS)}")
        if not (math.isfinite(value) and 0.0 <= value <= TURN_FACTS[name].highest):
            raise ValueError(f"fact {name!r} must lie in 0.0 to {TURN_FACTS[name].highest}, got {value}")
    return facts


Facts = Annotated[dict[str, float], AfterValidator(_known_and_in_range)]
"""Values by their name in ``TURN_FACTS``; one that is absent counts as neutral."""


def _pack(values: Sequence[int] | Sequence[float], code: Literal["I", "f"]) -> str:
    return base64.b64encode(struct.pack(f"<{len(values)}{code}", *values)).decode("ascii")


def _unpack(text: str, code: Literal["I", "f"]) -> list[Any]:
    return [value for (value,) in struct.iter_unpack(f"<{code}", base64.b64decode(text, validate=True))]


def context_digest(token_ids: Sequence[int]) -> str:
    """Digest of the token ids before a turn's new prompt, so that a broken join cannot go unseen."""
    return hashlib.blake2b(struct.pack(f"<{len(token_ids)}I", *token_ids), digest_size=8).hexdigest()


class TurnSpan(BaseModel):
    """One call of a model by one seat.

    turn: number of this call within the seat's game, from 0, re-asks included.
    segment: number of the seat's growing sequence, from 0; a new one starts from a recap.
    is_reask: whether this call repeats a question because the previous reply could not be used.
    policy: what plays the seat (``GameTask.seating``).
    policy_version: of the weights that sampled this turn; those of another turn of the game may be newer. 0 for a
        policy with frozen weights, unless its server says otherwise.
    valid: whether the reply gave a legal action.
    error: why not; None when valid. "defaulted" for a demonstrator that gave no usable reply of its own.
    context_tokens: length of the segment before this turn; 0 for a segment's first turn.
    context_digest: ``context_digest`` of exactly those tokens.
    prompt_ids: token ids added to the segment as this turn's prompt.
    response_ids: token ids sampled; logprobs align with them one to one, natural logarithm, at the
        sampling temperature, as the server returned them; all 0.0 for a demonstration (``GameTask.demonstrators``).
    finish_reason: "stop" when the end-of-turn token was sampled, "length" when cut at the limit.
    reply: the text of ``response_ids``; thought: what stood between <think> tags in it.
    target: seat that the reply chose (to hit, check, poison, vote for, propose, ...); None where nobody was chosen, or
        an option such as to save, and where the reply is not valid.
    claimed_role: role that a public speech says its speaker has, the first that it names; None without such a claim.
    facts: measurements of the reply by name (``TURN_FACTS``); the algorithm's configuration weighs them.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    game_id: str
    group_id: str
    seat: int
    role: str
    side: str
    day: int
    phase: str
    decision: str
    turn: int = Field(ge=0)
    segment: int = Field(ge=0)
    is_reask: bool
    policy: str
    policy_version: int = Field(ge=0)
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
    target: int | None = Field(default=None, ge=1)
    claimed_role: str | None = None
    facts: Facts = Field(default_factory=dict)

    @model_validator(mode="after")
    def _streams_align(self) -> Self:
        where = f"game {self.game_id}, seat {self.seat}, turn {self.turn}"
        if len(self.response_ids) != len(self.logprobs):
            raise ValueError(f"{where}: {len(self.response_ids)} sampled tokens but {len(self.logprobs)} log-probs")
        if not self.prompt_ids:
            raise ValueError(f"{where}: a turn without a prompt")
        if not all(math.isfinite(value) for value in self.logprobs):
            raise ValueError(f"{where}: a log-prob is not finite")
        return self

    def encode(self) -> Attributes:
        """Span attributes: flat, without None, nothing that a store would refuse."""
        fields = self.model_dump(exclude={"prompt_ids", "response_ids", "logprobs", "facts"}, exclude_none=True)
        attributes: Attributes = {_PREFIX + name: value for name, value in fields.items()}
        attributes[_SPAN_KIND] = "turn"
        attributes[_PREFIX + "facts"] = json.dumps(self.facts)
        attributes[_PREFIX + "prompt_ids"] = _pack(self.prompt_ids, "I")
        attributes[_PREFIX + "response_ids"] = _pack(self.response_ids, "I")
        attributes[_PREFIX + "logprobs"] = _pack(self.logprobs, "f")
        return attributes

    @classmethod
    def decode(cls, span: Span) -> Self:
        """Read a turn back from a stored span; raises MalformedSpan."""
        return _decode(cls, span, {"prompt_ids": "I", "response_ids": "I", "logprobs": "f"}, json_fields=("facts",))


class Judgement(BaseModel):
    """What the judge says of one turn; turns that it said nothing of are not listed.

    score: 0.0 (worthless) to 1.0 (excellent).
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    seat: int
    turn: int = Field(ge=0)
    score: float = Field(ge=0, le=1)


class SeatResult(BaseModel):
    """How one seat fared: facts, not rewards; the algorithm's configuration weighs them.

    outcome: 1.0 the seat's side won, -1.0 it lost, 0.0 a draw.
    turns: model calls made; invalid_turns: those whose reply could not be used.
    segments: growing sequences that the seat's turns make up; more than one when the context was spent.
    decisions: questions answered, with or without a model; a model needs one call for each, or two with a re-ask.
    reasked_decisions: decisions whose question was put a second time; defaulted_decisions: those of them that were
        then taken by the declared default action.
    facts: means of the turns' facts (``TURN_FACTS``); empty for a seat without model turns.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    seat: int
    role: str
    side: Literal["wolf", "good"]
    policy: str
    trainable: bool
    outcome: Literal[1.0, -1.0, 0.0]
    turns: int
    invalid_turns: int
    segments: int
    decisions: int
    reasked_decisions: int
    defaulted_decisions: int
    facts: Facts = Field(default_factory=dict)


class ResultSpan(BaseModel):
    """The end of one finished game.

    policy_version: of the trained policy that the game was enqueued for.
    result: "wolf", "good" or "draw". days: days played.
    turns: turn spans that this attempt wrote, so that a missing one shows.
    transcript: the whole game in Chinese, as someone who sees all cards would read it.
    judgements: of trained turns, where a judge was asked and gave a usable answer in time.
    judge_asked: turns that the judge was asked about.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    game_id: str
    group_id: str
    preset: str
    seed: int
    policy_version: int
    result: Literal["wolf", "good", "draw"]
    days: int
    turns: int
    seats: tuple[SeatResult, ...]
    transcript: str
    judgements: tuple[Judgement, ...] = ()
    judge_asked: int = 0

    def rewards(self) -> dict[str, float]:
        """Named reward dimensions; the first is the primary one: the outcome of the good side.

        Of each seat: its outcome, the means of its turns' facts, and of its turns' judgements if there are any.
        """
        outcome = {"good": 1.0, "wolf": -1.0, "draw": 0.0}[self.result]
        dimensions = {"outcome.good": outcome, "outcome.wolf": -outcome}
        for seat in self.seats:
            scores = [judgement.score for judgement in self.judgements if judgement.seat == seat.seat]
            of_seat = {"outcome": seat.outcome, **seat.facts} | ({"judgement": fmean(scores)} if scores else {})
            dimensions |= {f"seat.{seat.seat}.{name}": value for name, value in of_seat.items()}
        return dimensions

    def encode(self) -> Attributes:
        """An agentlightning reward annotation (read by ``find_final_reward``) plus our own facts."""
        fields = self.model_dump(exclude={"seats", "judgements"})
        attributes: Attributes = {_PREFIX + name: value for name, value in fields.items()}
        attributes[_SPAN_KIND] = "result"
        attributes[_PREFIX + "seats"] = json.dumps([seat.model_dump() for seat in self.seats])
        attributes[_PREFIX + "judgements"] = json.dumps([judgement.model_dump() for judgement in self.judgements])
        reward = LightningSpanAttributes.REWARD.value
        for index, (name, value) in enumerate(self.rewards().items()):
            attributes[f"{reward}.{index}.{RewardAttributes.REWARD_NAME.value}"] = name
            attributes[f"{reward}.{index}.{RewardAttributes.REWARD_VALUE.value}"] = value
        return attributes

    @classmethod
    def decode(cls, span: Span) -> Self:
        """Read a result back from a stored span; raises MalformedSpan."""
        return _decode(cls, span, {}, json_fields=("seats", "judgements"))


def is_turn(span: Span) -> bool:
    """Whether the span is one of our turn spans."""
    return span.name == TURN_SPAN and span.attributes.get(_SPAN_KIND) == "turn"


def is_result(span: Span) -> bool:
    """Whether the span is one of our result spans (other reward annotations are not)."""
    return span.name == AGL_ANNOTATION and span.attributes.get(_SPAN_KIND) == "result"


def to_span(
    record: TurnSpan | ResultSpan,
    *,
    rollout_id: str,
    attempt_id: str,
    sequence_id: int,
    start_time: float,
    end_time: float,
) -> Span:
    """Wrap a record as a span of one attempt.

    Trace and span ids follow from (rollout, attempt, sequence), so that uploading the same span
    twice is recognised as the same span by any store. Times are seconds since the epoch.
    """
    trace_id = hashlib.blake2b(f"{rollout_id}/{attempt_id}".encode(), digest_size=16).hexdigest()
    span_id = hashlib.blake2b(f"{rollout_id}/{attempt_id}/{sequence_id}".encode(), digest_size=8).hexdigest()
    return Span.from_attributes(
        name=TURN_SPAN if isinstance(record, TurnSpan) else AGL_ANNOTATION,
        attributes=record.encode(),
        rollout_id=rollout_id,
        attempt_id=attempt_id,
        sequence_id=sequence_id,
        trace_id=trace_id,
        span_id=span_id,
        start_time=start_time,
        end_time=end_time,
    )


def _decode(
    record_type: type[Record],
    span: Span,
    packed_fields: dict[str, Literal["I", "f"]],
    json_fields: Sequence[str] = (),
) -> Record:
    where = f"span {span.span_id} ({span.name}) of rollout {span.rollout_id}, attempt {span.attempt_id}"
    fields: dict[str, Any] = {
        name: span.attributes[_PREFIX + name] for name in record_type.model_fields if _PREFIX + name in span.attributes
    }
    for name in (*packed_fields, *json_fields):
        if not isinstance(fields.get(name), str):
            raise MalformedSpan(f"{where}: attribute {_PREFIX + name} is missing or not text")
        try:
            if name in packed_fields:
                fields[name] = _unpack(fields[name], packed_fields[name])
            else:
                fields[name] = json.loads(fields[name])
        except (ValueError, struct.error) as error:
            raise MalformedSpan(f"{where}: attribute {_PREFIX + name}: {error}") from error
    try:
        return record_type.model_validate(fields)
    except ValueError as error:
        raise MalformedSpan(f"{where}: {error}") from error
