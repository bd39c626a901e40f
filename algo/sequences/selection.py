"""Selects a step's sequences for the update, and counts the others by reason.

Selection comes after the advantages, so that every rollout counts for the baselines.

Sampling depends on the seed and the order of the rollouts only: not on the run's name, which is in their ids, so that a
repeated run with another name selects the same.
"""

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from algo.sequences.trajectories import Trajectory
from configs.sections.training import SelectionConfig

ROLE_NOT_SELECTED = "role_not_selected"
STALE = "stale"
UNINFORMATIVE = "group_without_information"
NOT_SELECTED = {1.0: "winner_not_selected", -1.0: "loser_not_selected", 0.0: "draw_not_selected"}
"""Outcome of an actor (``Trajectory.dimensions``) -> reason for leaving it out."""

_Row = TypeVar("_Row")
_Kind = TypeVar("_Kind", str, float)


@dataclass(frozen=True)
class Selection:
    """The selected sequences.

    rows: indices into the step's trajectories, ascending.
    left_out: model turns of the other trajectories, counted by reason.
    """

    rows: tuple[int, ...]
    left_out: Counter[str]

    def of(self, per_trajectory: Sequence[_Row] | None) -> list[_Row] | None:
        """The entries of selected trajectories, from one entry per trajectory of the step; None stays None."""
        return None if per_trajectory is None else [per_trajectory[row] for row in self.rows]


def select_sequences(
    trajectories: Sequence[Trajectory],
    informative: Sequence[bool],
    config: SelectionConfig,
    seed: str,
    *,
    oldest_version_allowed: int,
) -> Selection:
    """Leave out other roles, stale sequences, groups without information, and actors outside a role's share, then those
    outside an outcome's, in this order.

    informative: see ``TokenAdvantages``.
    seed: of the sampling of whole actors, another one in each step. With a share s of n actors floor(s * n) are kept
        and, with the probability of the remainder, one more.
    oldest_version_allowed: sequences with a turn of older weights are left out.
    """
    reasons: dict[int, str] = {}
    of_roles = config.role_shares
    for row, (trajectory, tells) in enumerate(zip(trajectories, informative, strict=True)):
        if of_roles is not None and trajectory.role not in of_roles:
            reasons[row] = ROLE_NOT_SELECTED
        elif trajectory.oldest_version < oldest_version_allowed:
            reasons[row] = STALE
        elif not tells:
            reasons[row] = UNINFORMATIVE
    of_outcomes = {1.0: config.winners, -1.0: config.losers, 0.0: config.draws}
    if of_roles is not None:
        _sample(trajectories, reasons, seed, lambda one: one.role, of_roles, dict.fromkeys(of_roles, ROLE_NOT_SELECTED))
    _sample(trajectories, reasons, seed, lambda one: one.dimensions["outcome"], of_outcomes, NOT_SELECTED)
    left_out: Counter[str] = Counter()
    for row, reason in reasons.items():
        left_out[reason] += len(trajectories[row].turn_ends)
    return Selection(tuple(row for row in range(len(trajectories)) if row not in reasons), left_out)


def _sample(
    trajectories: Sequence[Trajectory],
    left_out: dict[int, str],
    seed: str,
    kind_of: Callable[[Trajectory], _Kind],
    shares: Mapping[_Kind, float],
    reasons: Mapping[_Kind, str],
) -> None:
    """Add to ``left_out`` the rows of the actors outside their kind's share."""
    if min(shares.values()) == 1:
        return
    by_kind: dict[_Kind, dict[tuple[str, str], list[int]]] = defaultdict(lambda: defaultdict(list))
    for row, trajectory in enumerate(trajectories):
        if row not in left_out:
            by_kind[kind_of(trajectory)][trajectory.task_id, trajectory.actor].append(row)
    for kind, actors in by_kind.items():
        draw = random.Random(f"{seed}/{kind}")
        drawn = draw.sample(list(actors.values()), len(actors))
        kept = int(shares[kind] * len(drawn) + draw.random())
        left_out.update((row, reasons[kind]) for rows in drawn[kept:] for row in rows)
