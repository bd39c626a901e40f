"""Selects a step's sequences for the update, and counts the others by reason.

Selection comes after the advantages, so that every rollout counts for the baselines.

Sampling depends on the seed and the rollouts' content only: not on the run's name, which is in their ids, so that a
repeated run with another name selects the same.
"""

import hashlib
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
_ActorInRollout = tuple[str, str]


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
    seed: int,
    *,
    oldest_version_allowed: int,
) -> Selection:
    """Leave out other roles, stale sequences, groups without information, and actors outside a role's share, then those
    outside an outcome's, in this order.

    informative: see ``TokenAdvantages``.
    seed: of the sampling of whole actors, together with their content. With a share s of n actors floor(s * n) are kept
        and, with the probability of the remainder, one more.
    oldest_version_allowed: sequences with a turn of older weights are left out.

    Raises ValueError, naming the rollout and actor, for an unknown outcome with a share below 1.
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
    _sample(trajectories, reasons, seed, _outcome, of_outcomes, NOT_SELECTED)
    left_out: Counter[str] = Counter()
    for row, reason in reasons.items():
        left_out[reason] += len(trajectories[row].turn_ends)
    return Selection(tuple(row for row in range(len(trajectories)) if row not in reasons), left_out)


def _sample(
    trajectories: Sequence[Trajectory],
    left_out: dict[int, str],
    seed: int,
    kind_of: Callable[[Trajectory], _Kind],
    shares: Mapping[_Kind, float],
    reasons: Mapping[_Kind, str],
) -> None:
    """Add to ``left_out`` the rows of the actors outside their kind's share."""
    if min(shares.values()) == 1:
        return
    by_kind: dict[_Kind, dict[_ActorInRollout, list[int]]] = defaultdict(dict)
    for actor, rows in _by_actor(trajectories, left_out).items():
        by_kind[kind_of(trajectories[rows[0]])][actor] = rows
    contents = _digests(trajectories)
    for kind, actors in by_kind.items():
        for row in _outside_share(actors, shares[kind], contents, f"{seed}/{kind}"):
            left_out[row] = reasons[kind]


def _by_actor(trajectories: Sequence[Trajectory], left_out: dict[int, str]) -> dict[_ActorInRollout, list[int]]:
    """Remaining rows of each actor, in the order of their segments."""
    actors: dict[_ActorInRollout, list[int]] = defaultdict(list)
    for row, trajectory in enumerate(trajectories):
        if row not in left_out:
            actors[trajectory.task_id, trajectory.actor].append(row)
    for rows in actors.values():
        rows.sort(key=lambda row: trajectories[row].segment)
    return actors


def _digests(trajectories: Sequence[Trajectory]) -> dict[str, str]:
    """task -> digest of the token ids of all its actors."""
    tokens: dict[str, list[tuple[str, int, tuple[int, ...]]]] = defaultdict(list)
    for trajectory in trajectories:
        tokens[trajectory.task_id].append((trajectory.actor, trajectory.segment, trajectory.token_ids))
    return {task_id: _digest(repr(sorted(found))) for task_id, found in tokens.items()}


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _outside_share(
    actors: dict[_ActorInRollout, list[int]], share: float, contents: dict[str, str], seed: str
) -> list[int]:
    order = sorted(actors, key=lambda actor: (_digest(f"{seed}/{contents[actor[0]]}/{actor[1]}"), actor))
    everything = "/".join(f"{contents[task_id]}/{actor}" for task_id, actor in order)
    count = int(share * len(order) + random.Random(f"{seed}/{everything}").random())
    return [row for actor in order[count:] for row in actors[actor]]


def _outcome(trajectory: Trajectory) -> float:
    outcome = trajectory.dimensions.get("outcome")
    if outcome not in NOT_SELECTED:
        raise ValueError(
            f"{trajectory.task_id}, {trajectory.actor}: its outcome is {outcome}, not one of "
            f"{sorted(NOT_SELECTED)}; selection.winners, losers and draws need it"
        )
    return outcome
