"""What is noted of a studied game beside its turns and its end: votes, claims, deaths, and what seats believed.

One span a game, written after all others, so that a game is stored alike with and without it. Everything in it follows
from what the referee saw, and, for beliefs, from questions that are no part of the game.
"""

from typing import ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from store.token_spans import NoteSpan

ProbeMoment = Literal["speech", "vote"]
"""When beliefs are asked for: before each public speech, and before each vote to exile."""

Chances = dict[int, dict[str, float]]
"""Seat -> role -> probability; those of a seat add up to 1."""

_FROZEN = ConfigDict(extra="forbid", frozen=True)


class Study(BaseModel):
    """What a task wants noted of its game.

    probes: when the living seats are asked what they believe; empty: never.
    questions: how many of the others each is asked about, drawn by the task's seed; None: all.
    with_tokens: also note the token ids of those questions, so that one can learn from them.
    """

    model_config = _FROZEN

    probes: frozenset[ProbeMoment] = frozenset()
    questions: int | None = Field(default=None, ge=1)
    with_tokens: bool = False


class VoteRecord(BaseModel):
    """A vote of an exile ballot, or of the ballot between tied seats.

    at: events of the game before the ballot; the votes of one ballot have the same. target: None for 弃票.
    odds: how likely the target is a wolf to somebody in the voter's seat who has only the public record and no god's
        card, by the expert's odds; None without a target. best: the highest such odds among those that could be voted
        for, the voter apart. chance: the mean of them.
    pivotal: whether the ballot would have ended otherwise without this vote.
    """

    model_config = _FROZEN

    at: int
    day: int
    seat: int
    target: int | None = None
    odds: float | None = None
    best: float
    chance: float
    pivotal: bool


class SpeechRecord(BaseModel):
    """A public speech. at: events before it. claimed: the role that it claims. reports: (seat, side) of its checks.

    turn: number of the seat's model turn that made it; None for a player without turns.
    """

    model_config = _FROZEN

    at: int
    day: int
    seat: int
    turn: int | None = Field(default=None, ge=0)
    claimed: str | None = None
    reports: tuple[tuple[int, Literal["wolf", "good"]], ...] = ()


class ChoiceRecord(BaseModel):
    """A night's victim (seat: None, the wolves together), or a seer's check."""

    model_config = _FROZEN

    day: int
    seat: int | None = None
    target: int | None = None


class ProbeTokens(BaseModel):
    """A question of a probe in tokens: where in its seat's sequence it stands, what it adds, the words to choose from.

    target: whom it is about. segment, context_tokens: how much of the seat's sequence stands before ``prompt_ids``.
    words: role -> token ids.
    """

    model_config = _FROZEN

    target: int
    segment: int
    context_tokens: int
    prompt_ids: tuple[int, ...]
    words: dict[str, tuple[int, ...]]


class BeliefRecord(BaseModel):
    """What one seat believed of the other living ones at one moment.

    at: events of the game so far, so that two beliefs can be told to differ by one speech.
    beliefs: of those asked about; None for a player that cannot be asked, or whose question did not fit its context.
    mass: of a policy: the mean share of its whole probability that the role words had; None of others.
    ceiling: the expert's odds, given all that the seat may know. deaf: the same without what was said and how anybody
    voted, from the cards, what the seat was told alone, and who died: what is known without listening.
    """

    model_config = _FROZEN

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
    """All that is noted of one game. deaths: seat -> the day on which it was publicly dead."""

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
                        raise ValueError(f"{self.game_id}: of seat {seat} the chances {of_role} do not add up to 1")
        return self
