"""The study span of a game: votes, claims, deaths, and the seats' beliefs.

One span per game, written after all others. Its content comes from the referee and, for beliefs, from probes, which are
no part of the game.
"""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from store.strict import Strict
from store.token_spans import NoteSpan

ProbeMoment = Literal["speech", "vote"]
"""When beliefs are probed: before each public speech, and before each vote to exile."""

Chances = dict[int, dict[str, float]]
"""Seat -> role -> probability; those of a seat add up to 1."""


class Study(Strict):
    """Options of a task's study.

    probes: when the beliefs of living seats are probed; empty: never.
    questions: number of other seats in each probe, drawn by the task's seed; None: all.
    with_tokens: also record the probes' token ids, for training.
    """

    probes: frozenset[ProbeMoment] = frozenset()
    questions: int | None = Field(default=None, ge=1)
    with_tokens: bool = False


class VoteRecord(Strict):
    """A vote of an exile ballot, or of the ballot between tied seats.

    at: events of the game before the ballot; the votes of one ballot have the same. target: None for 弃票.
    odds: probability that the target is a wolf, by the expert's odds from the voter's seat and the public record; None
        without a target. best: the maximum over the candidates other than the voter. chance: their mean.
    pivotal: whether the ballot would have ended differently without this vote.
    """

    at: int
    day: int
    seat: int
    target: int | None = None
    odds: float | None = None
    best: float
    chance: float
    pivotal: bool


class SpeechRecord(Strict):
    """A public speech. at: events before it. claimed: its role claim. reports: (seat, side) of its checks.

    turn: number of the seat's model turn with the speech; None for a player without turns.
    """

    at: int
    day: int
    seat: int
    turn: int | None = Field(default=None, ge=0)
    claimed: str | None = None
    reports: tuple[tuple[int, Literal["wolf", "good"]], ...] = ()


class ChoiceRecord(Strict):
    """A night's victim (seat: None, the wolves together), or a seer's check."""

    day: int
    seat: int | None = None
    target: int | None = None


class ProbeTokens(Strict):
    """A question of a probe in tokens.

    target: seat in question. segment, context_tokens: the part of the seat's sequence before ``prompt_ids``.
    words: role -> token ids of the answer.
    """

    target: int
    segment: int
    context_tokens: int
    prompt_ids: tuple[int, ...] = Field(min_length=1)
    words: dict[str, Annotated[tuple[int, ...], Field(min_length=1)]]


class BeliefRecord(Strict):
    """One seat's beliefs about the other living seats at one moment.

    at: events of the game so far, to find beliefs before and after a speech.
    beliefs: about the seats of the probe; None for a player without probes, or if a question exceeds its context.
    mass: mean probability of all role words together, for a policy; else None.
    ceiling: the expert's odds, from everything that the seat may know. deaf: the same without speeches and votes: from
        the cards, private information, and deaths.
    """

    at: int
    day: int
    moment: ProbeMoment
    seat: int
    beliefs: Chances | None = None
    mass: float | None = Field(default=None, ge=0)
    ceiling: Chances
    deaf: Chances
    asked: tuple[ProbeTokens, ...] = ()


class StudySpan(NoteSpan):
    """The study of one game. deaths: seat -> the day of its public death."""

    span_name: ClassVar[str] = "werewolf.study"
    prefix: ClassVar[str] = "werewolf."
    kind: ClassVar[str] = "study"
    json_fields: ClassVar[tuple[str, ...]] = ("votes", "speeches", "kills", "checks", "deaths", "beliefs")
    task_field: ClassVar[str] = "game_id"

    game_id: str
    votes: tuple[VoteRecord, ...] = ()
    speeches: tuple[SpeechRecord, ...] = ()
    kills: tuple[ChoiceRecord, ...] = ()
    checks: tuple[ChoiceRecord, ...] = ()
    deaths: dict[int, int] = Field(default_factory=dict)
    beliefs: tuple[BeliefRecord, ...] = ()

    @model_validator(mode="after")
    def _chances_are_shares(self) -> Self:
        for belief in self.beliefs:
            for chances in (belief.ceiling, belief.deaf, belief.beliefs or {}):
                for seat, of_role in chances.items():
                    if not abs(sum(of_role.values()) - 1.0) < 1e-3 or min(of_role.values()) < 0:
                        raise ValueError(f"{self.game_id}: the chances of seat {seat} do not add up to 1: {of_role}")
        return self
