"""Joint fit of strengths over all games of an evaluation: by player, side and, for the policy, role."""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from algo.evaluation.games import GameRow
from algo.evaluation.statistics import Estimate, Frozen, fit_by_cluster
from store.schema import TRAINED_POLICY


class Strengths(Frozen):
    """Log-odds of one joint fit; the reference is 0 as each side and in every role.

    advantage: of the good side between equals. players: overall, the mean of ``as_wolf`` and ``as_good``.
    roles: strength of the policy with a role, relative to its side.
    """

    reference: str
    games: int
    advantage: Estimate
    players: dict[str, Estimate]
    as_wolf: dict[str, Estimate]
    as_good: dict[str, Estimate]
    roles: dict[str, Estimate]


def fit_strengths(rows: Sequence[GameRow], reference: str | None, seed: int) -> Strengths | None:
    """The joint fit over all of the games; None without any. seed: of the resampling.

    The log-odds that the good side wins are the good side's advantage, plus the mean strength of the good seats, less
    that of the wolf seats. A player's strength has a term for its side; the policy also has one for each role, which
    its single seats separate from its side.
    """
    if not rows or reference is None:
        return None
    names = sorted({seat.player for row in rows for seat in row.seats} - {reference})
    roles = sorted({seat.role for row in rows for seat in row.seats if seat.player == TRAINED_POLICY})
    table = np.array([_features(row, names, roles) for row in rows])
    won = np.array([{"good": 1.0, "draw": 0.5, "wolf": 0.0}[row.result] for row in rows])
    estimate = fit_by_cluster(table, won, [row.cluster for row in rows], seed)
    advantage, *of_seats = np.eye(table.shape[1])
    less, both, of_role = of_seats[: len(names)], of_seats[len(names) : 2 * len(names)], of_seats[2 * len(names) :]

    def of_players(sign: float) -> dict[str, Estimate]:
        found = {name: estimate(one + sign * other) for name, one, other in zip(names, less, both, strict=True)}
        return dict(sorted(found.items(), key=lambda item: -item[1].value))

    return Strengths(
        reference=reference,
        games=len(rows),
        advantage=estimate(advantage),
        players=of_players(0.0),
        as_wolf=of_players(-1.0),
        as_good=of_players(1.0),
        roles=dict(zip(roles, map(estimate, of_role), strict=True)),
    )


def _features(row: GameRow, names: Sequence[str], roles: Sequence[str]) -> list[float]:
    """The advantage; of each player its share of the good seats less that of the wolves', and their sum; of each role
    the share of its seats that the policy has, counted against the good side for the wolves'."""
    less, both, of_role = (defaultdict[str, float](float) for _ in range(3))
    for side, sign in (("good", 1.0), ("wolf", -1.0)):
        own = [seat for seat in row.seats if seat.side == side]
        for seat in own:
            less[seat.player] += sign / len(own)
            both[seat.player] += 1 / len(own)
            if seat.player == TRAINED_POLICY:
                of_role[seat.role] += sign / len(own)
    return [1.0, *map(less.__getitem__, names), *map(both.__getitem__, names), *map(of_role.__getitem__, roles)]
