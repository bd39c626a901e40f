"""The row of a finished game: seats, result, notes of the runner and, for a few games, the whole transcript."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from algo.evaluation.beliefs import ProbedAnswer, probed_answers
from algo.evaluation.record import Evaluation, Row
from algo.evaluation.statistics import Frozen
from algo.rollouts.played import UnusableRollouts
from algo.rollouts.triplets import FinishedRollout
from algo.werewolf.matches import SIDES
from algo.werewolf.rewards import game_rewards
from configs.roles_and_decks import Role
from configs.sections.rewards import RewardConfig
from store.werewolf import GameTask, ResultSpan, SideName, read_events, seat_name
from store.werewolf_study import ChoiceRecord, SpeechRecord, StudySpan, VoteRecord


class SeatRow(Frozen):
    """One seat. won: whether its side won.

    turns: model calls; 0 for players without tokens of their own. invalid: invalid replies.
    errors: invalid replies or re-asked decisions, plus decisions made by default (defaulted).
    leaks: public speeches that name the wolves or print the system prompt.
    reward: by the run's weights; None without turns.
    """

    seat: int
    role: str
    side: SideName
    player: str
    won: bool
    turns: int = Field(ge=0)
    invalid: int = Field(ge=0)
    errors: int = Field(ge=0)
    defaulted: int = Field(ge=0)
    leaks: int = Field(ge=0)
    reward: float | None = None

    def is_of(self, player: str, side: SideName) -> bool:
        return (self.player, self.side) == (player, side)


class Spoken(Frozen):
    """A public speech of a model, with facts of it (``store.werewolf.TURN_FACTS``)."""

    seat: int
    text: str
    chinese_share: float = Field(ge=0, le=1)
    repetition: float = Field(ge=0, le=1)


_TURN_FIELDS = ("seat", "day", "decision", "policy", "policy_version", "is_reask", "thought", "reply", "error",
                "target", "events_before")  # fmt: skip


class Sample(Frozen):
    """A game kept whole. transcript: with all cards visible.

    events: the same for programs (``store.werewolf.read_events``). turns: some fields of each ``TurnSpan``.
    """

    transcript: str
    events: tuple[dict[str, Any], ...]
    turns: tuple[dict[str, Any], ...]


class GameRow(Row):
    """One finished game. cluster: the deal, by its seed. single: the seat given to one player alone.

    votes, speeches, kills, checks, deaths: from the runner's ``store.werewolf_study.StudySpan``.
    spoken: the public speeches of models, as sampled; without the wolves' talk by night.
    answers: beliefs of seats before votes, with the bounds of ``algo.evaluation.beliefs``.
    """

    single: int | None = None
    result: Literal["wolf", "good", "draw"]
    days: int
    seats: tuple[SeatRow, ...]
    votes: tuple[VoteRecord, ...] = ()
    speeches: tuple[SpeechRecord, ...] = ()
    spoken: tuple[Spoken, ...] = ()
    kills: tuple[ChoiceRecord, ...] = ()
    checks: tuple[ChoiceRecord, ...] = ()
    deaths: dict[int, int] = Field(default_factory=dict)
    answers: tuple[ProbedAnswer, ...] = ()
    sample: Sample | None = None

    @property
    def without_errors(self) -> bool:
        """Whether no seat of either side gave an invalid reply."""
        return not any(seat.errors for seat in self.seats)

    @property
    def match_key(self) -> str:
        """Deal and seating: the same key for the same game in every evaluation of equal conditions."""
        if self.single is not None:
            return f"{self.cluster}: single seat, {self.seat(self.single).player}"
        wolves, good = ("+".join(sorted(self.players_of(side))) for side in ("wolf", "good"))
        return f"{self.cluster}: {wolves} against {good}"

    @property
    def players(self) -> set[str]:
        return {seat.player for seat in self.seats}

    def seat(self, number: int) -> SeatRow:
        return next(seat for seat in self.seats if seat.seat == number)

    def players_of(self, side: SideName) -> set[str]:
        return {seat.player for seat in self.seats if seat.side == side}

    def is_whole(self, side: SideName, player: str) -> bool:
        return self.single is None and self.players_of(side) == {player}

    def sides_of(self, player: str) -> list[SideName]:
        """The sides that a player has whole; both where it plays itself."""
        return [side for side in SIDES if self.is_whole(side, player)]


GameEvaluation = Evaluation[GameRow]


def row_of(number: int, task: GameTask, rollout: FinishedRollout, rewards: RewardConfig, *, whole: bool) -> GameRow:
    """The row of a finished game. number: its index among the tasks. whole: keep its transcript and replies.

    Raises UnusableRollouts for a game whose deal, players or notes differ from its task.
    """
    result: ResultSpan = rollout.outcome
    single = next((rule.seat for rule in task.seating if rule.seat is not None), None)
    seated: Mapping[str, set[str]] = {rule.side: set(rule.players) for rule in task.seating if rule.side is not None}
    strangers = [seat.policy for seat in result.seats if single is None and seat.policy not in seated[seat.side]]
    if result.seed != task.seed or strangers or len(rollout.notes) != (task.study is not None):
        raise UnusableRollouts(
            f"game {task.game_id} was played with deal {result.seed}, players "
            f"{sorted({seat.policy for seat in result.seats})} and {len(rollout.notes)} notes; its task has deal "
            f"{task.seed} and other players or notes: run runners of this version, then --resume auto"
        )
    note = rollout.notes[0] if rollout.notes else StudySpan(game_id=task.game_id)
    assert isinstance(note, StudySpan)
    earned = game_rewards(rollout, rewards)
    leaks = [turn.seat for turn in rollout.turns if turn.facts.get("identity_leak", 0.0) > 0]
    return GameRow(
        number=number,
        task_id=task.game_id,
        cluster=task.seed,
        single=single,
        result=result.result,
        days=result.days,
        seats=tuple(
            SeatRow(
                seat=seat.seat,
                role=seat.role,
                side=seat.side,
                player=seat.policy,
                won=seat.side == result.result,
                turns=seat.turns,
                invalid=seat.invalid_turns,
                errors=max(seat.invalid_turns, seat.reasked_decisions) + seat.defaulted_decisions,
                defaulted=seat.defaulted_decisions,
                leaks=leaks.count(seat.seat),
                reward=earned[seat_name(seat.seat)].total if seat.turns else None,
            )
            for seat in result.seats
        ),
        votes=note.votes,
        speeches=note.speeches,
        spoken=tuple(
            Spoken(
                seat=turn.seat,
                text=turn.reply,
                chinese_share=turn.facts["chinese_share"],
                repetition=turn.facts["repetition"],
            )
            for turn in rollout.turns
            if turn.facts.get("speech_chars") and turn.decision != "wolf_talk"
        ),
        kills=note.kills,
        checks=note.checks,
        deaths=note.deaths,
        answers=tuple(probed_answers(note, task.preset, {seat.seat: Role(seat.role) for seat in result.seats})),
        sample=Sample(
            transcript=result.transcript,
            events=tuple(read_events([*rollout.turns, result])),
            turns=tuple({name: getattr(turn, name) for name in _TURN_FIELDS} for turn in rollout.turns),
        )
        if whole
        else None,
    )
