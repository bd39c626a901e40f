"""What an evaluation found: the games it played, everything that is counted over them, and the file it is kept in."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, Field

from algo.evaluation.ratings import Rating, Ratings
from algo.evaluation.statistics import Estimate
from algo.machine.whole_files import write_whole
from algo.werewolf.behaviour import Behaviour
from algo.werewolf.game_statistics import (
    Conduct,
    Score,
    conduct_of,
    score_of_both_sides,
    score_of_role,
    score_of_side,
)
from algo.werewolf.matches import SIDES, GameRecord
from algo.werewolf.samples import SampleGame
from store.schema import TRAINED_POLICY
from store.werewolf import SideName

EVALUATIONS_FOLDER = "evaluations"
"""Inside the run's folder. Its files are named so that they sort in the order in which they were made."""


class OpponentStatistics(BaseModel):
    """How the policy fared against one opponent.

    both_sides: its win rate over both sides, by deals. by_role: of the roles that the policy's seats were dealt.
    not_finished: games that were to be played and failed, or could not be read.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    by_side: dict[SideName, Score]
    both_sides: Score
    by_role: dict[str, Score]
    not_finished: int


class Statistics(BaseModel):
    """What is counted over an evaluation's games, from the policy's view.

    all_games: its win rate over all opponents and sides, by deals.
    conduct, conduct_by_side: how it kept to the game, on both sides and on each.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    all_games: Score
    by_opponent: dict[str, OpponentStatistics]
    conduct: Conduct
    conduct_by_side: dict[SideName, Conduct]


class Evaluation(BaseModel):
    """One evaluation of a policy.

    label: what the run calls it, such as "step 5". player: the name under which the policy is rated, "policy@5".
    policy_version: of the weights that were served. preset: what was played. seed: of the deals, and of the resampling
    behind some intervals. temperature: of the policy's sampling.
    opponents: opponent -> games that were to be played against it.
    games: those that finished, in their order.
    failures: reasons of the others, each with the number of its games. retried: reasons of attempts that were repeated.
    ratings: of all players, after this evaluation and those before it in the run.
    behaviour: side -> what the policy's seats of that side did, against all opponents.
    samples: of each opponent and side the games of the first two deals that finished.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    label: str
    player: str
    policy_version: int = Field(ge=0)
    preset: str
    seed: int
    temperature: float
    opponents: dict[str, int]
    games: tuple[GameRecord, ...]
    failures: dict[str, int] = Field(default_factory=dict)
    retried: dict[str, int] = Field(default_factory=dict)
    ratings: dict[str, Rating] = Field(default_factory=dict)
    behaviour: dict[SideName, Behaviour] = Field(default_factory=dict)
    samples: tuple[SampleGame, ...] = ()

    def against(self, opponent: str) -> list[GameRecord]:
        """The finished games against one opponent."""
        return [game for game in self.games if opponent in game.players.values()]

    def statistics(self) -> Statistics:
        """Everything that is counted; follows from the games alone."""
        return Statistics(
            all_games=score_of_both_sides(self.games, TRAINED_POLICY, self.seed),
            by_opponent={name: self._against(name, expected) for name, expected in self.opponents.items()},
            conduct=conduct_of(self.games, TRAINED_POLICY, self.seed, sides=SIDES),
            conduct_by_side={side: conduct_of(self.games, TRAINED_POLICY, self.seed, sides=[side]) for side in SIDES},
        )

    def metrics(self) -> dict[str, float]:
        """The statistics as flat numbers for a log, below ``evaluation/``. What has no games has no numbers."""
        found = self.statistics()
        metrics = _score_metrics("win_rate", found.all_games)
        for opponent, statistics in found.by_opponent.items():
            metrics |= _score_metrics(f"win_rate/both/vs/{opponent}", statistics.both_sides)
            for side, score in statistics.by_side.items():
                metrics |= _score_metrics(f"win_rate/{side}/vs/{opponent}", score)
            for role, score in statistics.by_role.items():
                metrics |= _score_metrics(f"win_rate/role/{role}/vs/{opponent}", score)
            metrics[f"draws/vs/{opponent}"] = float(statistics.both_sides.draws)
        for where, conduct in (("", found.conduct), *((f"/{side}", found.conduct_by_side[side]) for side in SIDES)):
            metrics |= _estimate_metrics(f"invalid_replies{where}", conduct.invalid_replies)
            metrics |= _estimate_metrics(f"games_with_identity_leak{where}", conduct.games_with_leak)
        for name, value in (("days", found.conduct.days), ("turns_per_game", found.conduct.turns_per_game)):
            if value is not None:
                metrics[name] = value
        metrics |= {
            "defaulted_decisions": float(found.conduct.defaulted_decisions),
            "games/finished": float(len(self.games)),
            "games/not_finished": float(sum(self.opponents.values()) - len(self.games)),
        }
        if (rating := self.ratings.get(self.player)) is not None:
            metrics |= {"rating": rating.mu, "rating/low": rating.low, "rating/high": rating.high}
        return {f"evaluation/{name}": value for name, value in metrics.items()}

    def write(self, path: Path) -> None:
        """Write it as JSON, with its statistics for those who read the file. A file that is there is replaced whole."""
        write_whole(path, _File(evaluation=self, statistics=self.statistics()).model_dump_json(indent=1) + "\n")

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read what ``write`` wrote. Raises ValueError, naming the file and what is wrong with it."""
        try:
            return _File.model_validate_json(path.read_text(encoding="utf-8")).evaluation
        except ValueError as error:
            raise ValueError(f"{path} is no evaluation that this version can read: {error}") from error

    def _against(self, opponent: str, expected: int) -> OpponentStatistics:
        games = self.against(opponent)
        own_seats = [seat for game in games for seat in game.seats if seat.side in game.sides_of(TRAINED_POLICY)]
        roles = sorted({seat.role for seat in own_seats})
        return OpponentStatistics(
            by_side={side: score_of_side(games, TRAINED_POLICY, side) for side in SIDES},
            both_sides=score_of_both_sides(games, TRAINED_POLICY, self.seed),
            by_role={role: score_of_role(games, TRAINED_POLICY, role) for role in roles},
            not_finished=expected - len(games),
        )


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    evaluation: Evaluation
    statistics: Statistics


def read_evaluations(run_dir: Path) -> list[Evaluation]:
    """The evaluations in a run's folder, in the order of their files' names. Raises ValueError if one is unreadable."""
    return [Evaluation.read(path) for path in sorted((run_dir / EVALUATIONS_FOLDER).glob("*.json"))]


def with_ratings(evaluations: Iterable[Evaluation]) -> list[Evaluation]:
    """The evaluations with ``ratings`` computed anew: each over its own games and those of all before it."""
    ratings = Ratings()
    rated = []
    for evaluation in evaluations:
        ratings.add(evaluation.games, {TRAINED_POLICY: evaluation.player})
        rated.append(evaluation.model_copy(update={"ratings": ratings.players()}))
    return rated


def _score_metrics(name: str, score: Score) -> dict[str, float]:
    return _estimate_metrics(name, score.win_rate)


def _estimate_metrics(name: str, estimate: Estimate | None) -> Mapping[str, float]:
    if estimate is None:
        return {}
    return {name: estimate.value, f"{name}/low": estimate.low, f"{name}/high": estimate.high}
