"""From rewards to advantages: verl's estimators, with a baseline per deal and side, and our own per role.

Werewolf is zero-sum: the rewards of both sides cancel, so a baseline across sides would compare the luck of the cards.
Rollouts of one group share their deal, hence an actor's baseline is over the actors of its side in all rollouts of its
group: verl's group index is "group_id/side". Estimators that standardise over the whole batch (reinforce_plus_plus,
gae …) get one side at a time.

An actor's rollout is one row for the estimator, with any number of segments (token sequences): its sampled tokens
concatenated, the reward on the last one. So a baseline counts each actor of each rollout once, and the segments of an
actor share its advantage.
"""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from statistics import fmean, pstdev, pvariance
from typing import Any

import numpy as np
import torch
from verl.trainer.config import AlgoConfig
from verl.trainer.ppo.core_algos import get_adv_estimator_fn

from algo.advantages.baseline import Comparison, RoleBaselines, against_roles, equal, within_group, within_side
from algo.advantages.branching import NO_BRANCHES, BranchCredit
from algo.advantages.registry import ESTIMATORS, ROLE_BASELINE
from algo.sequences.actor_rows import ActorRow, PerToken, actor_rows, spread_over_tokens
from algo.sequences.trajectories import Trajectory
from configs.sections.training import AdvantageConfig

_EPSILON = 1e-6  # verl's, in its estimators that divide by a deviation


@dataclass(frozen=True)
class TokenAdvantages:
    """Advantages of a step's trajectories.

    per_token: one float32 tensor per trajectory, in their order, aligned with its ``token_ids``;
        0.0 where the loss mask is 0. With branches times the weights of their turns, which ``metrics`` leave out.
    informative: for each trajectory, whether its comparison is informative. If not, all its advantages are zero, and
        dropping the trajectory does not change the sum of gradients (only the divisor of a sequence mean).
    returns: targets of the critic, rows like ``per_token``; None with estimators without a critic.
    metrics: groups (deal and side), those with one rollout, those with equal rewards, actors, actors without
        information, mean and spread of rewards; by side, the mean, standard deviation and maximum magnitude of the
        advantages of the informative rows' sampled tokens; with role_baseline the baselines by role; with branches,
        of the recorded decisions the mean magnitude and the variance of their advantages by outcome, and the variance
        by the estimator alone.
    """

    per_token: list[torch.Tensor]
    informative: tuple[bool, ...]
    returns: list[torch.Tensor] | None
    metrics: dict[str, float]


def token_advantages(
    trajectories: Sequence[Trajectory],
    config: AdvantageConfig,
    *,
    role_baselines: RoleBaselines | None = None,
    kl_penalties: PerToken | None = None,
    values: PerToken | None = None,
    branches: BranchCredit = NO_BRANCHES,
) -> TokenAdvantages:
    """Compute each trajectory's advantages by the configured estimator, one that ``check_estimator`` accepts.

    role_baselines: the running baselines of the estimator role_baseline; updated with this step's rewards.
    kl_penalties: per token, times its coefficient; subtracted from the reward at that token.
    values: per token, the critic's value of the state before the token.
    Both have one row per trajectory, aligned with its ``token_ids``; entries at given tokens are ignored.
    branches: the credit from branches among the trajectories; with another credit than ``branch`` there are none.

    Groups with a single rollout or with equal rewards are not passed to estimators with a baseline per group, and get
    zero: verl's GRPO would use the plain reward of a single row as its advantage, and would divide rounding errors of
    equal rewards by almost zero. The same would happen to small differences by KL penalties, so equality is tested
    without them. Likewise for a role with rewards equal to its baseline, and for a side with equal returns.

    Raises ValueError for missing ``values`` or ``role_baselines``, and for rows of the wrong length.
    """
    estimator = config.estimator
    needs_values = ESTIMATORS[estimator].values
    if needs_values and values is None and trajectories:
        raise ValueError(f"advantage.estimator {estimator!r} needs the critic's values")
    rows = [
        replace(row, branch_gain=branches.outcomes.get((row.task_id, row.actor), 0.0))
        for row in actor_rows(trajectories, by_turn=config.credit != "game", kl_penalties=kl_penalties, values=values)
    ]
    whole = [row for row in rows if row.task_id not in branches.branches]
    groups = _by("group", whole)
    one_game = {name for name, members in groups.items() if len({row.task_id for row in members}) == 1}
    equal_rewards = {name for name, members in groups.items() if equal(row.reward for row in members)}

    compared, metrics = _comparisons(rows, branches.branches, config, role_baselines)
    valued = [replace(row, outcome=row.valued_outcome) for row in rows]
    returns = None
    if branches.branches:
        # Means over branches spread less than outcomes: verl would divide by their deviation, not that of whole games.
        undivided = config.model_copy(update={"normalize_by_std": False})
        advantages, alone = (
            [row / each.deviation for row, each in zip(_by_outcome(of, compared, undivided)[0], compared, strict=True)]
            for of in (valued, rows)
        )
        advantages = [_by_branches(*of_row, branches) for of_row in zip(rows, compared, advantages, strict=True)]
        metrics |= _branch_metrics(rows, alone, advantages, branches)
    else:
        advantages, returns = _by_outcome(valued, compared, config)
    advantages = [
        advantage + row.gains_of_turns(comparison.turn_means) / comparison.deviation
        if comparison.by_turn
        else advantage
        for row, advantage, comparison in zip(rows, advantages, compared, strict=True)
    ]

    rewards = [row.reward for row in whole]
    informative = [
        bool(advantage.any()) if (row.task_id, row.actor) in branches.advantages else each.by_outcome or each.by_turn
        for row, each, advantage in zip(rows, compared, advantages, strict=True)
    ]
    weighed = _weighed(rows, advantages, informative, branches) if branches.branches else advantages
    metrics |= {
        "advantage/groups": len(groups),
        "advantage/groups_of_one_rollout": len(one_game),
        "advantage/groups_of_equal_rewards": len(equal_rewards - one_game),
        "advantage/actors": len(rows),
        "advantage/actors_without_information": informative.count(False),
        "advantage/reward_mean": fmean(rewards) if rewards else 0.0,
        "advantage/reward_std": pstdev(rewards) if rewards else 0.0,
    }
    by_trajectory = {number: flag for row, flag in zip(rows, informative, strict=True) for number in row.segments}
    return TokenAdvantages(
        per_token=spread_over_tokens(trajectories, rows, weighed),
        informative=tuple(by_trajectory[number] for number in range(len(trajectories))),
        returns=spread_over_tokens(trajectories, rows, returns) if needs_values and returns is not None else None,
        metrics={name: float(value) for name, value in metrics.items()}
        | _advantage_metrics(list(compress(rows, informative)), list(compress(advantages, informative))),
    )


def _comparisons(
    rows: Sequence[ActorRow], branches: Collection[str], config: AdvantageConfig, role_baselines: RoleBaselines | None
) -> tuple[list[Comparison], dict[str, float]]:
    """The comparison of each row, and the baselines as metrics. branches: tasks whose rows do not count in them."""
    whole = [row for row in rows if row.task_id not in branches]
    if config.estimator == ROLE_BASELINE:
        if role_baselines is None:
            raise ValueError(f"advantage.estimator {ROLE_BASELINE!r} needs role_baselines")
        among = "role"
        compared, metrics = against_roles(whole, config, role_baselines)
    else:
        among, compare = ("group", within_group) if ESTIMATORS[config.estimator].groups else ("side", within_side)
        compared, metrics = {name: compare(members, config) for name, members in _by(among, whole).items()}, {}
    found = [compared.get(getattr(row, among), Comparison(False)) for row in rows]
    return [
        replace(each, by_outcome=False) if row.task_id in branches else each
        for row, each in zip(rows, found, strict=True)
    ], metrics


def _by_outcome(
    rows: Sequence[ActorRow], compared: Sequence[Comparison], config: AdvantageConfig
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Advantages and returns of each row's sampled tokens by the estimator; zeros without a comparison by outcome."""
    advantages = [torch.zeros(row.tokens) for row in rows]
    returns = [torch.zeros(row.tokens) for row in rows]
    for side in sorted({row.side for row in rows}):
        heard = [number for number, row in enumerate(rows) if row.side == side and compared[number].by_outcome]
        found = _estimate([rows[number] for number in heard], [compared[number] for number in heard], config)
        for number, (advantage, value) in zip(heard, found, strict=True):
            advantages[number], returns[number] = advantage, value
    return advantages, returns


def _by_branches(
    row: ActorRow, comparison: Comparison, advantage: torch.Tensor, branches: BranchCredit
) -> torch.Tensor:
    """The advantages, replaced by the branches' credit where there is one, in the same unit."""
    credited = advantage.clone()
    for turn, tokens in row.tokens_of_turns():
        value = branches.advantage(row.task_id, row.actor, turn.number)
        if value is not None:
            credited[tokens] = value / comparison.deviation
    return credited


def _weighed(
    rows: Sequence[ActorRow], advantages: Sequence[torch.Tensor], informative: Sequence[bool], branches: BranchCredit
) -> Sequence[torch.Tensor]:
    """The advantages times the weights of their turns, which are scaled to a mean of 1 over the informative rows."""
    weights = [[branches.weight(row.task_id, row.actor, turn.number) for turn in row.turns] for row in rows]
    mean = fmean([weight for of_turns in compress(weights, informative) for weight in of_turns] or [1.0])
    weighed = [advantage.clone() for advantage in advantages]
    for row, advantage, of_turns in zip(rows, weighed, weights, strict=True):
        for (_, tokens), weight in zip(row.tokens_of_turns(), of_turns, strict=True):
            advantage[tokens] *= weight / mean
    return weighed


def _branch_metrics(
    rows: Sequence[ActorRow],
    alone: Sequence[torch.Tensor],
    credited: Sequence[torch.Tensor],
    branches: BranchCredit,
) -> dict[str, float]:
    pairs = [
        (by_estimator[turn.end - 1].item(), by_branches[turn.end - 1].item())
        for row, by_estimator, by_branches in zip(rows, alone, credited, strict=True)
        for turn in row.turns
        if (row.task_id, row.actor, turn.number) in branches.worths
    ]
    if not pairs:
        return {}
    by_estimator, by_branches = zip(*pairs, strict=True)
    return {
        "advantage/branched/decisions": len(pairs),
        "advantage/branched/magnitude": fmean(map(abs, by_branches)),
        "advantage/branched/variance": pvariance(by_branches),
        "advantage/branched/variance_by_estimator": pvariance(by_estimator),
    }


def _by(name: str, rows: Sequence[ActorRow]) -> dict[str, list[ActorRow]]:
    found: dict[str, list[ActorRow]] = defaultdict(list)
    for row in rows:
        found[getattr(row, name)].append(row)
    return found


def _estimate(
    rows: Sequence[ActorRow], compared: Sequence[Comparison], config: AdvantageConfig
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Advantages and returns of each row's sampled tokens: float32, shape (sampled tokens,)."""
    if not rows:
        return []
    estimator = ESTIMATORS[config.estimator]
    shape = len(rows), max(row.tokens for row in rows)
    mask, token_level_rewards, values = torch.zeros(shape), torch.zeros(shape), torch.zeros(shape)
    for number, row in enumerate(rows):
        mask[number, : row.tokens] = 1.0
        token_level_rewards[number, : row.tokens] = row.token_rewards(estimator.returns)
        if row.values is not None:
            values[number, : row.tokens] = row.values
    if config.estimator == ROLE_BASELINE:
        scores = token_level_rewards.sum(dim=-1) - torch.tensor([each.mean for each in compared])
        if config.normalize_by_std:
            scores = scores / (torch.tensor([each.deviation for each in compared]) + _EPSILON)
        advantages = returns = scores.unsqueeze(-1) * mask
    elif estimator.values:
        advantages, returns = get_adv_estimator_fn(config.estimator)(
            token_level_rewards, values, mask, gamma=config.gamma, lam=config.lam
        )
    else:
        verls = AlgoConfig(
            adv_estimator=config.estimator,
            gamma=config.gamma,
            lam=config.lam,
            norm_adv_by_std_in_grpo=config.normalize_by_std,
        )
        arguments: dict[str, Any] = {"config": verls}
        if estimator.groups:
            arguments["index"] = np.array([row.group for row in rows], dtype=object)
        if estimator.divides:
            arguments["norm_adv_by_std_in_grpo"] = config.normalize_by_std
        advantages, returns = get_adv_estimator_fn(config.estimator)(
            token_level_rewards=token_level_rewards, response_mask=mask, **arguments
        )
    return [
        (advantages[number, : row.tokens].float(), returns[number, : row.tokens].float())
        for number, row in enumerate(rows)
    ]


def _advantage_metrics(rows: Sequence[ActorRow], advantages: Sequence[torch.Tensor]) -> dict[str, float]:
    metrics: dict[str, float] = {}
    for side in sorted({row.side for row in rows}):
        found = torch.cat([advantage for row, advantage in zip(rows, advantages, strict=True) if row.side == side])
        metrics[f"advantage/{side}/mean"] = found.mean().item()
        metrics[f"advantage/{side}/std"] = found.std(correction=0).item()
        metrics[f"advantage/{side}/abs_max"] = found.abs().max().item()
    return metrics
