"""Werewolf's part of the contract: its task with the seating, and the spans of its turns and outcomes."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Annotated, Any, ClassVar, Literal, Self, get_args

from pydantic import AfterValidator, Field, field_validator, model_validator
from pydantic_core import from_json

from store.players import TRAINED_POLICY, SeatingRule, SideName
from store.schema import TokenLimits, check_kind
from store.strict import Strict
from store.token_spans import CallSpan, MalformedSpan, OutcomeSpan, TaskKind
from store.werewolf_study import Study, StudySpan

WEREWOLF = "werewolf"
"""Kind of the game's tasks."""

PERSON = "person"
"""Name of a human player."""

PEOPLE = "people"
"""Metadata entry of a rollout that people played: its purpose, ``EVALUATION`` or ``DEMONSTRATION``."""

EVALUATION, DEMONSTRATION = "evaluation", "demonstration"


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("must have printable characters only")
    return text


TaskName = Annotated[str, Field(min_length=1, max_length=256), AfterValidator(_printable)]
"""A name that is safe in logs and terminals: no line ends, no escape codes."""


class RecordedReply(Strict):
    """A policy's reply of a recorded game.

    prompt: ``context_digest`` of the whole prompt. finish_reason: as in ``CallSpan``.
    """

    prompt: str
    token_ids: tuple[Annotated[int, Field(ge=0, lt=2**32)], ...]
    finish_reason: str


class Past(Strict):
    """A recorded game up to one decision, from which a game branches off.

    game_id, sampling_seed: of the recorded game. Players without a model repeat their choices from its seed, and seats
        stay with its servers, whose prefix caches hold it.
    moment, seat: of the decision at which the game branches (``TurnSpan.moment``); other seats of that moment repeat
        theirs.
    prompt: ``context_digest`` of that decision's whole prompt.
    replies: seat -> the repeated replies, in their order, for every seat of a policy.
    """

    game_id: TaskName
    sampling_seed: int = Field(ge=0)
    moment: int = Field(ge=0)
    seat: int = Field(ge=1)
    prompt: str
    replies: dict[int, tuple[RecordedReply, ...]]


class GameTask(Strict):
    """One game: the ``input`` of a rollout.

    kind: distinguishes games from the tasks of other workloads in the same hub.
    game_id: unique within the run.
    group_id: games with the same id share the deal, and were enqueued for the same policy version; they have a common
        baseline.
    seed: deals the roles and breaks ties; the same for every game of a group.
    sampling_seed: seeds the sampling and the players' own choices; differs between the games of a
        group, so that they differ while each can be replayed.
    preset: name of the rule preset.
    rules: overrides of the preset, by the name of the preset's field.
    seating: rules for the seats' players; the first that matches a seat decides, and every seat must be matched. Rules
        and not names, since only the referee knows the deal. A mapping side -> name is short for two rules.
    trainable: sides for training, in seats of the trained policy or a demonstrator.
    demonstrators: players with recorded decisions: each is stored as a turn of the trained policy, with the prompt that
        the policy would have received and the decision as its reply.
    study: further records of the game (``store.werewolf_study``); None: none.
    past: what the game repeats before it goes on with its own ``sampling_seed``; repeated replies are recorded as turns
        that are not trainable. None: the game begins with the deal.
    """

    kind: Literal["werewolf"] = WEREWOLF
    game_id: TaskName
    group_id: TaskName
    seed: int = Field(ge=0)
    sampling_seed: int = Field(ge=0)
    preset: str = Field(min_length=1)
    rules: dict[str, bool | int | str] = Field(default_factory=dict)
    seating: tuple[SeatingRule, ...]
    trainable: frozenset[SideName]
    demonstrators: frozenset[str] = frozenset()
    limits: TokenLimits
    study: Study | None = None
    past: Past | None = None

    @field_validator("seating", mode="before")
    @classmethod
    def _by_side(cls, seating: Any) -> Any:
        if isinstance(seating, dict):
            return tuple({"side": side, "players": {player: 1.0}} for side, player in seating.items())
        return seating

    @field_validator("demonstrators")
    @classmethod
    def _policy_needs_none(cls, demonstrators: frozenset[str]) -> frozenset[str]:
        if TRAINED_POLICY in demonstrators:
            raise ValueError(f"{TRAINED_POLICY!r} cannot be a demonstrator: its turns are recorded already")
        return demonstrators

    @model_validator(mode="after")
    def _every_seat_has_a_player(self) -> Self:
        for side in get_args(SideName):
            of_side = [rule for rule in self.seating if rule.side in (None, side)]
            whole_side = [number for number, rule in enumerate(of_side) if rule.role is None and rule.seat is None]
            if not whole_side:
                raise ValueError(f"seating names no player for every seat of side {side!r}")
            in_force = of_side[: whole_side[0] + 1]
            seated = {name for rule in in_force for name in rule.players}
            if side in self.trainable and not any(self.may_train(name, side) for name in seated):
                raise ValueError(
                    f"side {side!r} is trainable, but no rule seats {TRAINED_POLICY!r} or a demonstrator on it"
                )
        return self

    @property
    def task_id(self) -> str:
        return self.game_id

    def may_train(self, player: str, side: str) -> bool:
        """Whether this player's turns on this side are for training."""
        return side in self.trainable and (player == TRAINED_POLICY or player in self.demonstrators)

    def encode(self) -> dict[str, Any]:
        payload = self.model_dump(
            mode="json", exclude={name for name in ("study", "past") if getattr(self, name) is None}
        )
        payload["trainable"] = sorted(self.trainable)
        payload["demonstrators"] = sorted(self.demonstrators)
        if self.study is not None:
            payload["study"]["probes"] = sorted(self.study.probes)
        return payload

    @classmethod
    def decode(cls, rollout_input: Any) -> Self:
        """Read a rollout's input. Raises WrongKind, or pydantic's ValidationError, naming every wrong field."""
        check_kind(rollout_input, WEREWOLF)
        return cls.model_validate(rollout_input)


@dataclass(frozen=True, slots=True)
class TurnFact:
    """One fact of a reply, from 0.0 to ``highest``. neutral: its value where nothing can be measured."""

    meaning: str
    neutral: float = 0.0
    highest: float = 1.0


TURN_FACTS: Mapping[str, TurnFact] = {
    "invalid": TurnFact("1.0 when the reply is not usable"),
    "reask": TurnFact("1.0 when the call repeats a question"),
    "cut": TurnFact("1.0 when the reply ended at its token limit"),
    "speech_chars": TurnFact("characters of the speech, before the game's limit", highest=math.inf),
    "overlong": TurnFact("1.0 when the speech exceeded the game's limit and was cut"),
    "chinese_share": TurnFact("share of the speech's letters that are Chinese characters", neutral=1.0),
    "repetition": TurnFact("share of the speech's 4-character runs that occur earlier in it"),
    "repeats_earlier": TurnFact("share of the speech's 4-character runs that occur in the seat's earlier speeches"),
    "identity_leak": TurnFact(
        "1.0 when a public speech reveals the wolves, by patterns (a lower bound), or prints the prompt"
    ),
    "vote_against_enemy": TurnFact("1.0 when a vote to exile is cast against a seat of the other side"),
    "attack_on_enemy": TurnFact(
        "1.0 when a wolf attack or its proposal, poison, a shot or an exploding wolf's kill is at a seat of the "
        "other side"
    ),
}
"""Facts of every reply. Those of a speech are neutral without a usable speech."""

NEUTRAL_FACTS: Mapping[str, float] = {name: fact.neutral for name, fact in TURN_FACTS.items()}


def _known_and_in_range(facts: dict[str, float]) -> dict[str, float]:
    for name, value in facts.items():
        if name not in TURN_FACTS:
            raise ValueError(f"unknown fact {name!r}; known: {', '.join(TURN_FACTS)}")
        if not (math.isfinite(value) and 0.0 <= value <= TURN_FACTS[name].highest):
            raise ValueError(f"fact {name!r} must lie in 0.0 to {TURN_FACTS[name].highest}, got {value}")
    return facts


Facts = Annotated[dict[str, float], AfterValidator(_known_and_in_range)]
"""Values by their name in ``TURN_FACTS``; an absent one counts as neutral."""


_OF_A_TURN = {
    "seat", "day", "decision", "turn", "segment", "is_reask", "policy", "policy_version", "thought", "reply", "error",
    "target", "events_before",
}  # fmt: skip


class TurnSpan(CallSpan):
    """One model call of one seat; for the common fields see ``CallSpan``.

    turn: includes re-asks. segment: a new one starts with a recap.
    is_reask: whether this call repeats a question after an unusable reply.
    policy: the seat's player (``GameTask.seating``).
    error: "defaulted" for a demonstrator without a usable reply.
    logprobs: all 0.0 for a demonstration (``GameTask.demonstrators``).
    target: seat that the reply chose (to hit, check, poison, vote for, propose, ...); None for no seat, for an option
        such as to save, and for an invalid reply.
    events: new events since the turns before it, including the consequences of its reply (``encode_events``); for
        seats with simultaneous decisions only in the last turn.
    events_before: number of the game's events before the decision.
    moment: number of the referee's earlier rounds of questions; seats with simultaneous decisions share it.
    facts: of the reply by name (``TURN_FACTS``); the configuration weights them.
    """

    span_name: ClassVar[str] = "werewolf.turn"
    prefix: ClassVar[str] = "werewolf."
    json_fields: ClassVar[tuple[str, ...]] = ("facts",)
    task_field: ClassVar[str] = "game_id"

    game_id: str
    group_id: str
    seat: int
    role: str
    side: str
    day: int
    decision: str
    is_reask: bool
    target: int | None = Field(default=None, ge=1)
    facts: Facts = Field(default_factory=dict)
    events: str = ""
    events_before: int = Field(0, ge=0)
    moment: int = Field(0, ge=0)

    def as_data(self) -> dict[str, Any]:
        """The turn as JSON data, without its tokens and without None.

        facts: those that are not 0.0. tokens: numbers of given and sampled ones. logprob: mean over the sampled ones of
        a policy.
        """
        data = self.model_dump(include=_OF_A_TURN, exclude_none=True)
        data["facts"] = {name: value for name, value in self.facts.items() if value}
        data["tokens"] = [len(self.prompt_ids), len(self.response_ids)]
        return data | ({"logprob": round(fmean(self.logprobs), 4)} if any(self.logprobs) else {})

    @property
    def actor(self) -> str:
        return seat_name(self.seat)

    @property
    def card(self) -> tuple[str, str]:
        return self.role, self.side

    @property
    def question(self) -> str:
        return self.decision


def seat_name(seat: int) -> str:
    """Name of a seat as an actor; names sort as the numbers do."""
    return f"seat {seat:02d}"


class Judgement(Strict):
    """The judge's score of one turn.

    score: 0.0 (worthless) to 1.0 (excellent).
    """

    seat: int
    turn: int = Field(ge=0)
    score: float = Field(ge=0, le=1)


class SeatResult(Strict):
    """One seat's facts in a game; the configuration weights them into rewards.

    outcome: 1.0 the seat's side won, -1.0 it lost, 0.0 a draw.
    turns: model calls; invalid_turns: those with an unusable reply.
    segments: sequences of the seat's turns; more than one if the context was full.
    decisions: with or without a model; a model needs one call for each, or two with a re-ask.
    reasked_decisions: decisions with a re-ask; defaulted_decisions: those of them that took the default action.
    facts: means of the turns' facts (``TURN_FACTS``); empty for a seat without model turns.
    """

    seat: int
    role: str
    side: Literal["wolf", "good"]
    policy: str
    trainable: bool
    outcome: Literal[1.0, -1.0, 0.0]  # pyright: ignore[reportInvalidTypeForm] pydantic takes floats, too
    turns: int
    invalid_turns: int
    segments: int
    decisions: int
    reasked_decisions: int
    defaulted_decisions: int
    facts: Facts = Field(default_factory=dict)


class ResultSpan(OutcomeSpan):
    """The outcome of one finished game; for the common fields see ``OutcomeSpan``.

    result: "wolf", "good" or "draw". days: days played.
    transcript: in Chinese, with all cards visible.
    events: after those of the last turn (``encode_events``).
    judgements: of trained turns, where a judge gave a usable reply in time.
    judge_asked: number of turns sent to the judge.
    """

    prefix: ClassVar[str] = "werewolf."
    json_fields: ClassVar[tuple[str, ...]] = ("seats", "judgements")
    task_field: ClassVar[str] = "game_id"

    game_id: str
    preset: str
    seed: int
    result: Literal["wolf", "good", "draw"]
    days: int
    seats: tuple[SeatResult, ...]
    judgements: tuple[Judgement, ...] = ()
    judge_asked: int = 0
    events: str = ""

    @property
    def summary(self) -> str:
        return f"{self.result} after {self.days} days"

    @property
    def actor_names(self) -> frozenset[str]:
        return frozenset(seat_name(seat.seat) for seat in self.seats)

    def rewards(self) -> dict[str, float]:
        """Reward dimensions by name; the first, the outcome of the good side, is the primary one.

        For each seat: its outcome, the means of its turns' facts, and of its turns' judgements if it has any.
        """
        outcome = {"good": 1.0, "wolf": -1.0, "draw": 0.0}[self.result]
        dimensions = {"outcome.good": outcome, "outcome.wolf": -outcome}
        for seat in self.seats:
            scores = [judgement.score for judgement in self.judgements if judgement.seat == seat.seat]
            of_seat = {"outcome": seat.outcome, **seat.facts} | ({"judgement": fmean(scores)} if scores else {})
            dimensions |= {f"seat.{seat.seat}.{name}": value for name, value in of_seat.items()}
        return dimensions

    def as_data(self, calls: Sequence[TurnSpan]) -> dict[str, Any]:
        """The whole game in the format of ``python -m runners.werewolf play --format json``. calls: all its turns."""
        return {
            "preset": self.preset,
            "seed": self.seed,
            "players": {str(seat.seat): seat.policy for seat in self.seats},
            "roles": {str(seat.seat): seat.role for seat in self.seats},
            "events": read_events([*calls, self]),
            "turns": [call.as_data() for call in calls],
            "result": self.result,
        }

    def check_note(self, note: StudySpan) -> None:
        roles = {seat.seat: seat.role for seat in self.seats}
        choices = (*note.votes, *note.kills, *note.checks)
        acted = {seat for choice in choices for seat in (choice.seat, choice.target) if seat is not None}
        if strangers := {*acted, *(speech.seat for speech in note.speeches)} - roles.keys():
            raise MalformedSpan(f"game {self.game_id}: actions of or against other seats, {sorted(strangers)}")
        if any(check.seat is None for check in note.checks):
            raise MalformedSpan(f"game {self.game_id}: a check without a seat")
        for belief in note.beliefs:
            named = {belief.seat, *(belief.beliefs or ()), *(probe.target for probe in belief.asked)}
            if strangers := named - roles.keys():
                raise MalformedSpan(f"game {self.game_id}: beliefs of or about other seats, {sorted(strangers)}")
            believed = belief.beliefs
            if believed is not None and not (
                believed and believed.keys() <= belief.ceiling.keys() & belief.deaf.keys()
            ):
                raise MalformedSpan(
                    f"game {self.game_id}: beliefs of seat {belief.seat} without odds of the same seats"
                )
            for probe in belief.asked:
                if (role := roles[probe.target]) not in probe.words:
                    raise MalformedSpan(f"game {self.game_id}: a probe of seat {probe.target} has no word for {role}")


Asked = tuple[int, str, bool]
"""(seat, decision, whether it is hidden from others) of a pending decision."""


def encode_events(first: int, events: Sequence[Mapping[str, Any]], asked: Sequence[Asked] = ()) -> str:
    """Events as JSON text, for a span.

    first: number of the first of them in the game, from 0. asked: decisions that are pending after them.
    """
    return json.dumps(
        {"first": first, "events": list(events), "asked": list(asked)}, ensure_ascii=False, separators=(",", ":")
    )


def read_events(spans: Sequence[TurnSpan | ResultSpan]) -> list[dict[str, Any]]:
    """The events of a game's spans in their order, up to the first gap. Raises MalformedSpan."""
    found: list[dict[str, Any]] = []
    try:
        # Unlike json, it refuses what cannot be written again, such as halves of a character.
        parts = [from_json(span.events) for span in spans if span.events]
        for part in sorted(parts, key=lambda part: part["first"]):
            if part["first"] == len(found):
                found += part["events"]
        if not all(isinstance(event, dict) for event in found):
            raise ValueError("an event is not a JSON object")
    except (ValueError, TypeError, LookupError) as error:
        raise MalformedSpan(f"the events of game {spans[0].task} cannot be read: {error}") from error
    return found


GAME = TaskKind(WEREWOLF, TurnSpan, ResultSpan, runner="runners.werewolf", note=StudySpan)
