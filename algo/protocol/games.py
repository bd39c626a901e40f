"""What is kept of a protocol's finished games: who sat where, how each ended, what was noted beside it."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from algo.protocol.panel import Setting, single_seat_of
from algo.rollouts.triplets import FinishedRollout
from store.werewolf import GameTask, SideName
from store.werewolf_study import StudySpan


class PlayedSeat(BaseModel):
    """One seat. errors: replies that could not be used, and decisions that were then taken by default."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    seat: int
    role: str
    side: SideName
    player: str
    errors: int = Field(ge=0)


class ProtocolGame(BaseModel):
    """One game. deal: its seed; games of one deal are not independent. single: the seat given to one player alone."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    game_id: str
    setting: Setting
    deal: int
    single: int | None = None
    result: Literal["wolf", "good", "draw"]
    days: int
    seats: tuple[PlayedSeat, ...]

    @property
    def without_errors(self) -> bool:
        """Whether every seat's every reply could be used, on both sides."""
        return not any(seat.errors for seat in self.seats)

    @property
    def place(self) -> str:
        """The deal and who sat where, alike in every report of the same terms: of two games there is one a report."""
        if self.single is not None:
            return f"{self.deal}: single seat, {self.seat(self.single).player}"
        wolves, good = ("+".join(sorted(self.players_of(side))) for side in ("wolf", "good"))
        return f"{self.deal}: {wolves} against {good}"

    def seat(self, number: int) -> PlayedSeat:
        """The seat of this number. Raises KeyError."""
        for seat in self.seats:
            if seat.seat == number:
                return seat
        raise KeyError(number)

    def players_of(self, side: SideName) -> set[str]:
        """Who plays a side."""
        return {seat.player for seat in self.seats if seat.side == side}


@dataclass(frozen=True)
class StudiedGame:
    """A game and what was noted of it."""

    game: ProtocolGame
    study: StudySpan

    @cached_property
    def roles(self) -> dict[int, str]:
        """Seat -> role."""
        return {seat.seat: seat.role for seat in self.game.seats}


def studied_games(
    tasks: Iterable[tuple[Setting, GameTask]], finished: Iterable[FinishedRollout]
) -> tuple[StudiedGame, ...]:
    """The finished games, in their order. Raises ValueError for one that was not played as its task says."""
    by_id = {task.game_id: (setting, task) for setting, task in tasks}
    return tuple(_studied(*by_id[rollout.outcome.game_id], rollout) for rollout in finished)


def _studied(setting: Setting, task: GameTask, rollout: FinishedRollout) -> StudiedGame:
    result = rollout.outcome
    if result.seed != task.seed or len(rollout.notes) != 1:
        raise ValueError(
            f"game {task.game_id} was played with deal {result.seed} and noted {len(rollout.notes)} times; its task "
            f"says deal {task.seed}, noted once: are the runners of this version?"
        )
    game = ProtocolGame(
        game_id=task.game_id,
        setting=setting,
        deal=task.seed,
        single=single_seat_of(task),
        result=result.result,
        days=result.days,
        seats=tuple(
            PlayedSeat(
                seat=seat.seat,
                role=seat.role,
                side=seat.side,
                player=seat.policy,
                errors=max(seat.invalid_turns, seat.reasked_decisions) + seat.defaulted_decisions,
            )
            for seat in result.seats
        ),
    )
    return StudiedGame(game, rollout.notes[0])
