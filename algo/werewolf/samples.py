"""Sample games of an evaluation, whole: what each seat thought, said and chose, and what it would have earned.

All evaluations of a run have the same deals, so the samples of two of them, of one opponent, side and deal, can be
read side by side.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from algo.rollouts.triplets import FinishedRollout
from algo.werewolf.matches import SIDES, players_by_side
from algo.werewolf.rewards import game_rewards
from configs.sections.rewards import RewardConfig
from store.werewolf import GameTask, SideName, read_events, seat_name

SAMPLES_OF_A_SIDE = 2
"""Games kept of each opponent and side: those of the first deals that finished."""


class SampleTurn(BaseModel):
    """One reply of a model; the fields mean what they mean in ``store.werewolf.TurnSpan``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    day: int
    decision: str
    thought: str
    reply: str
    error: str | None
    target: int | None


class SampleSeat(BaseModel):
    """One seat of a sample game.

    policy: who played it. reward: what it earns by the run's weights (``algo.werewolf.rewards``); None without turns.
    turns: in their order; none of players without tokens of their own.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    seat: int
    role: str
    side: SideName
    policy: str
    reward: float | None
    turns: tuple[SampleTurn, ...]


class SampleGame(BaseModel):
    """A finished game between two players.

    deal: its seed. players: side -> name of its player. transcript: as someone who sees all cards would read it.
    events: the same for programs (``store.werewolf.read_events``).
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    game_id: str
    deal: int
    players: dict[SideName, str]
    result: Literal["wolf", "good", "draw"]
    days: int
    transcript: str
    events: tuple[dict[str, Any], ...] = ()
    seats: tuple[SampleSeat, ...]


def sample_games(
    matches: Iterable[Sequence[GameTask]], finished: Iterable[FinishedRollout], weights: RewardConfig
) -> tuple[SampleGame, ...]:
    """Of each match and each of its sides the games of the first deals that finished.

    matches: the tasks of each (``algo.werewolf.matches.match_tasks``).
    """
    games = {game.outcome.game_id: game for game in finished}
    samples: list[SampleGame] = []
    for tasks in matches:
        for first in range(len(SIDES)):
            found = [task for task in tasks[first :: len(SIDES)] if task.game_id in games]
            samples += [_sample(task, games[task.game_id], weights) for task in found[:SAMPLES_OF_A_SIDE]]
    return tuple(samples)


def _sample(task: GameTask, game: FinishedRollout, weights: RewardConfig) -> SampleGame:
    result, rewards = game.outcome, game_rewards(game, weights)
    turns: dict[int, list[SampleTurn]] = {seat.seat: [] for seat in result.seats}
    for triplet in game.triplets:
        fields = {name: triplet.metadata[name] for name in SampleTurn.model_fields}
        turns[triplet.metadata["seat"]].append(SampleTurn(**fields))
    return SampleGame(
        game_id=result.game_id,
        deal=result.seed,
        players=players_by_side(task),
        result=result.result,
        days=result.days,
        transcript=result.transcript,
        events=tuple(read_events([*game.turns, result])),
        seats=tuple(
            SampleSeat(
                seat=seat.seat,
                role=seat.role,
                side=seat.side,
                policy=seat.policy,
                reward=rewards[seat_name(seat.seat)].total if seat.turns else None,
                turns=tuple(turns[seat.seat]),
            )
            for seat in result.seats
        ),
    )
