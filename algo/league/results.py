"""Results of the policy against each opponent, by row, and the fit of strengths.

A row holds the games from one joining of the pool to the next; the fit treats it as one player, though its weights
change. Rows are compared through common opponents. Where the policy always plays the same side, its strength cannot be
separated from the side's advantage.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict

from algo.evaluation.statistics import Estimate, Floats, covariance, fit_logistic, normal_interval
from store.players import PAST_SELVES

DECAY = 0.99
"""Weight of a game relative to the next one against the same opponent."""
PRIOR_GAMES = 2.0
"""Prior of each opponent: games, half of them won."""
UNIFORM_SHARE = 0.1
"""Share of the games that is spread evenly, so that every member is an opponent."""


@dataclass(frozen=True)
class Match:
    """A finished game of the policy against one other player.

    side: of the policy. score: 1.0 it won, 0.5 a draw, 0.0 it lost.
    """

    opponent: str
    side: str
    score: float


def past_name(version: int) -> str:
    """Name of a past self and of its folder."""
    return f"{PAST_SELVES}-{version:06d}"


def is_past(name: str) -> bool:
    """Whether a player's name is a past self's."""
    return name.startswith(f"{PAST_SELVES}-")


class Tally(BaseModel):
    """Games of the policy against one opponent, as one side; the others are lost."""

    model_config = ConfigDict(extra="forbid")

    games: int = 0
    wins: int = 0
    draws: int = 0

    @property
    def score(self) -> float:
        """Share of games won; a draw is half of one."""
        return (self.wins + self.draws / 2) / self.games


class Row(BaseModel):
    """first, last: versions of the policy. games: opponent -> side that the policy played -> its games."""

    model_config = ConfigDict(extra="forbid")

    first: int
    last: int
    games: dict[str, dict[str, Tally]] = {}

    @property
    def name(self) -> str:
        return f"policy {self.first}" + (f"-{self.last}" if self.last > self.first else "")


class Recent(BaseModel):
    """Games against one opponent, older ones with less weight. score: those won; a draw is half of one."""

    games: float = 0.0
    score: float = 0.0


class Results(BaseModel):
    """All games of a run. rows: the last one is the current. recent: by opponent."""

    model_config = ConfigDict(extra="forbid")

    rows: list[Row] = []
    recent: dict[str, Recent] = {}

    def count(self, matches: Iterable[Match], version: int) -> None:
        """Add games to the current row. version: of the policy."""
        row = self.rows[-1]
        row.last = version
        for match in matches:
            tally = row.games.setdefault(match.opponent, {}).setdefault(match.side, Tally())
            tally.games += 1
            tally.wins += match.score == 1.0
            tally.draws += match.score == 0.5
            recent = self.recent.setdefault(match.opponent, Recent())
            recent.games = DECAY * recent.games + 1
            recent.score = DECAY * recent.score + match.score

    def recent_win_rate(self, opponent: str) -> float:
        """The policy's win rate in recent games, either side; 0.5 for a new opponent."""
        recent = self.recent.get(opponent, Recent())
        return (recent.score + PRIOR_GAMES / 2) / (recent.games + PRIOR_GAMES)

    def pfsp_shares(self, names: Sequence[str]) -> dict[str, float]:
        """Name -> share of games, proportional to (1 - p)**2 with the recent win rate p, mixed with a uniform share.

        Prioritised fictitious self-play: Vinyals et al., Grandmaster level in StarCraft II using multi-agent
        reinforcement learning, Nature 575, 2019 ("squared" among the weightings of its pseudocode).
        """
        weights = {name: (1 - self.recent_win_rate(name)) ** 2 for name in names}
        total = sum(weights.values())
        return {
            name: (1 - UNIFORM_SHARE) * weight / total + UNIFORM_SHARE / len(names) for name, weight in weights.items()
        }

    def _played(self) -> Iterator[tuple[str, str, str, Tally]]:
        """(row, opponent, side of the policy, games)."""
        for row in self.rows:
            for opponent, by_side in row.games.items():
                for side, tally in by_side.items():
                    yield row.name, opponent, side, tally

    def cells(self) -> list[dict[str, Any]]:
        """Cells of the win table for ``payoff.json``: ``wolf`` and ``good`` are the players' names."""
        found = []
        for policy, opponent, side, tally in self._played():
            other, lost = "good" if side == "wolf" else "wolf", tally.games - tally.wins - tally.draws
            players = {side: policy, other: opponent}
            cell = {"wolf": players["wolf"], "good": players["good"], "games": tally.games}
            found.append(cell | {f"{side}_wins": tally.wins, f"{other}_wins": lost, "draws": tally.draws})
        return found

    def strengths(self) -> "Strengths | None":
        """One joint fit over all games; None before the first."""
        played = list(self._played())
        if not played:
            return None
        names = tuple(dict.fromkeys(name for policy, opponent, *_ in played for name in (policy, opponent)))
        table = np.zeros((len(played), 1 + len(names)))
        table[:, 0] = 1.0  # the good side's advantage: the fit is of its wins
        for line, (policy, opponent, side, _) in enumerate(played):
            sign = 1.0 if side == "good" else -1.0
            table[line, 1 + names.index(policy)], table[line, 1 + names.index(opponent)] = sign, -sign
        games = np.array([float(tally.games) for *_, tally in played])
        won = np.array([tally.score if side == "good" else 1 - tally.score for *_, side, tally in played])
        found = fit_logistic(table, won, games, np.zeros(table.shape[1]))
        return Strengths(names, found[1:], covariance(table, games, found)[1:, 1:])

    def strongest_past_self(self, strengths: "Strengths | None") -> tuple[str, Estimate] | None:
        """(past self, its strength less that of the current row) with the highest lower end above 0; else None.

        The intervals of all past selves hold together, for independent games; those of one deal are not quite.
        """
        present = self.rows[-1].name
        if strengths is None or present not in strengths.names:
            return None
        past = [name for name in strengths.names if is_past(name)]
        ahead = {name: strengths.difference(name, present, len(past)) for name in past}
        name = max(ahead, key=lambda name: ahead[name].low, default=None)
        return None if name is None or ahead[name].low <= 0 else (name, ahead[name])


@dataclass(frozen=True)
class Strengths:
    """Log-odds to win between two players, without the good side's advantage, with 95 % intervals.

    names: of all players. values: shape (players,); covariance: shape (players, players).
    """

    names: tuple[str, ...]
    values: Floats
    covariance: Floats

    def difference(self, one: str, other: str, among: int = 1) -> Estimate:
        """Strength of one less that of another. among: see ``normal_interval``.

        Raises ValueError for a player without games.
        """
        a, b = self.names.index(one), self.names.index(other)
        value = float(self.values[a] - self.values[b])
        variance = float(self.covariance[a, a] + self.covariance[b, b] - 2 * self.covariance[a, b])
        return normal_interval(value, variance, among)
