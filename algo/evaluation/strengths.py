"""Joint fit of strengths over all games of an evaluation: by player, side and, for the policy, role."""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from algo.evaluation.games import GameRow
from algo.evaluation.statistics import Estimate, Floats, Frozen, fit_by_cluster
from algo.werewolf.matches import SIDES
from store.schema import TRAINED_POLICY


class Strengths(Frozen):
    """Log-odds of one joint fit; the reference is 0 as each side.

    players: those that played both sides; overall, the mean of both. advantage: of the good side between equals; it,
    ``as_wolf`` and ``as_good`` are only known where a player also plays itself, or the policy's opponents each other.
    roles: strength of the policy with a role in single seats, relative to its mean seat of that side.
    """

    reference: str
    games: int
    advantage: Estimate | None
    players: dict[str, Estimate]
    as_wolf: dict[str, Estimate]
    as_good: dict[str, Estimate]
    roles: dict[str, Estimate]


def fit_strengths(rows: Sequence[GameRow], reference: str | None, seed: int) -> Strengths | None:
    """The joint fit over all of the games; None if they tell no player's strength. seed: of the resampling.

    The log-odds that the good side wins are the good side's advantage, plus the mean strength of the good seats, less
    that of the wolf seats. A player's strength has a term for its side; the policy also has one for each role, which
    its single seats separate from its side.
    """
    if not rows or reference is None:
        return None
    names = sorted({seat.player for row in rows for seat in row.seats} - {reference})
    side_of = {seat.role: seat.side for seat in rows[0].seats}
    table = np.array([_features(row, names, list(side_of)) for row in rows])
    won = np.array([{"good": 1.0, "draw": 0.5, "wolf": 0.0}[row.result] for row in rows])
    estimate = fit_by_cluster(table, won, [row.cluster for row in rows], seed)
    told = np.linalg.pinv(table, 1e-9) @ table
    advantage, *others = np.eye(table.shape[1])
    less, both = (dict(zip(names, others[start:], strict=False)) for start in (0, len(names)))
    of_role = dict(zip(side_of, others[2 * len(names) :], strict=True))

    def is_told(weights: Floats) -> bool:
        """Whether the games determine this sum; the prior alone would, as of a player that plays one side only."""
        return bool(weights.any()) and np.allclose(told @ weights, weights)

    def of_players(sign: float) -> dict[str, Estimate]:
        sums = {name: less[name] + sign * both[name] for name in names}
        found = {name: estimate(weights) for name, weights in sums.items() if is_told(weights)}
        return dict(sorted(found.items(), key=lambda item: -item[1].value))

    if not (players := of_players(0.0)):
        return None
    mean = {side: np.mean([of_role[seat.role] for seat in rows[0].seats if seat.side == side], 0) for side in SIDES}
    of_roles = {role: of_role[role] - mean[side] for role, side in sorted(side_of.items())}
    apart = is_told(advantage)
    return Strengths(
        reference=reference,
        games=len(rows),
        advantage=estimate(advantage) if apart else None,
        players=players,
        as_wolf=of_players(-1.0) if apart else {},
        as_good=of_players(1.0) if apart else {},
        roles={role: estimate(weights) for role, weights in of_roles.items() if is_told(weights)},
    )


def _features(row: GameRow, names: Sequence[str], roles: Sequence[str]) -> list[float]:
    """One row of the fit: the advantage; for each player its share of the good seats less its share of the wolf seats;
    for each player the sum of both shares; for each role its difference from the policy's mean seat of that side, in
    shares of the side's seats, negative for wolf roles."""
    less, both, of_role = (defaultdict[str, float](float) for _ in range(3))
    for side, sign in (("good", 1.0), ("wolf", -1.0)):
        own = [seat for seat in row.seats if seat.side == side]
        for seat in own:
            less[seat.player] += sign / len(own)
            both[seat.player] += 1 / len(own)
            if seat.player == TRAINED_POLICY:
                of_role[seat.role] += sign / len(own)
                for other in own:
                    of_role[other.role] -= sign / len(own) ** 2
    return [1.0, *map(less.__getitem__, names), *map(both.__getitem__, names), *map(of_role.__getitem__, roles)]
