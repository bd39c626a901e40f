"""How strong the policy was in each row, and each of its opponents, by one joint fit (``algo.evaluation.statistics``).

A row is a player of its own, though its weights change within it. Rows never meet each other, and opponents neither:
what tells them apart is whom they met in common. A policy that always plays the same side cannot be told from that
side's advantage: then rows can be compared with rows, and hardly with opponents.
"""

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from algo.evaluation.statistics import CONFIDENCE, Estimate, Floats, covariance, fit_logistic
from algo.league.state import LeagueState, is_past

_Z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)


@dataclass(frozen=True)
class Strengths:
    """Log-odds to win between two players, apart from the good side's advantage, with 95 % intervals.

    names: of all players. values: shape (players,); covariance: shape (players, players).
    """

    names: tuple[str, ...]
    values: Floats
    covariance: Floats

    def beyond(self, one: str, other: str) -> Estimate:
        """How much stronger one is than another. Raises ValueError for who has not played."""
        a, b = self.names.index(one), self.names.index(other)
        value = float(self.values[a] - self.values[b])
        variance = float(self.covariance[a, a] + self.covariance[b, b] - 2 * self.covariance[a, b])
        half = _Z * max(variance, 0.0) ** 0.5
        return Estimate(value=value, low=value - half, high=value + half)


def fit(state: LeagueState) -> Strengths | None:
    """The fit over all games of the run; None before the first."""
    played = [
        (row.name, opponent, side, tally)
        for row in state.rows
        for opponent, by_side in row.games.items()
        for side, tally in by_side.items()
    ]
    if not played:
        return None
    names = tuple(dict.fromkeys(name for row, opponent, _, _ in played for name in (row, opponent)))
    table = np.zeros((len(played), 1 + len(names)))
    table[:, 0] = 1.0  # the good side's advantage; what is fitted is its wins
    for line, (row, opponent, side, _) in enumerate(played):
        good, wolf = (row, opponent) if side == "good" else (opponent, row)
        table[line, 1 + names.index(good)], table[line, 1 + names.index(wolf)] = 1.0, -1.0
    games = np.array([float(tally.games) for *_, tally in played])
    score = np.array([tally.score / tally.games for *_, tally in played])
    won = np.where([side == "good" for _, _, side, _ in played], score, 1 - score)
    found = fit_logistic(table, won, games, np.zeros(table.shape[1]))
    return Strengths(names, found[1:], covariance(table, games, found)[1:, 1:])


def stronger_past(state: LeagueState, strengths: Strengths | None) -> tuple[str, Estimate] | None:
    """The past self that the present row is most clearly weaker than, and by how much; None where none is clearly so.

    Clearly: the whole interval of the difference is on the past self's side.
    """
    if strengths is None or state.rows[-1].name not in strengths.names:
        return None
    present = state.rows[-1].name
    ahead = {name: strengths.beyond(name, present) for name in strengths.names if is_past(name)}
    name = max(ahead, key=lambda name: ahead[name].low, default=None)
    return None if name is None or ahead[name].low <= 0 else (name, ahead[name])
