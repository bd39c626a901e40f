"""From rewards to advantages: verl's estimators, with a baseline per deal and side, and our own per role.

Werewolf is zero-sum: over both sides of a rollout the rewards cancel, so a baseline across sides would
compare the luck of the cards. Rollouts of one group share their deal, hence the baseline of an actor is
taken over the actors of its side in all rollouts of its group: verl's group index is "group_id/side".
Estimators that standardise over the whole batch (reinforce_plus_plus, gae …) see one side at a time.

An actor's rollout is one row for the estimator, however many segments (token sequences) it was cut into:
its sampled tokens one after another, the actor's reward on the last of them. So a baseline counts
each actor of each rollout once, and the segments of an actor share its advantage.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress
from statistics import fmean, pstdev
from typing import Any

import numpy as np
import torch
from verl.trainer.config import AlgoConfig
from verl.trainer.ppo.core_algos import get_adv_estimator_fn

from algo.advantages.baseline import Comparison, RoleBaselines, against_roles, equal, within_group, within_side
from algo.advantages.registry import ESTIMATORS, ROLE_BASELINE, check_estimator
from algo.sequences.actor_rows import ActorRow, PerToken, actor_rows, spread_over_tokens
from algo.sequences.trajectories import Trajectory
from configs.sections.training import AdvantageConfig

_EPSILON = 1e-6  # verl's, in its estimators that divide by a deviation


@dataclass(frozen=True)
class TokenAdvantages:
    """Advantages of a step's trajectories.

    per_token: one float32 tensor per trajectory, in their order, aligned with its ``token_ids``;
        0.0 where the loss mask is 0.
    informative: for each trajectory whether its group could tell better from worse. Where False all
        its advantages are zero, and leaving the trajectory out changes no sum of gradients (only
        the number of rows that a sequence mean divides by).
    returns: what the critic is to predict, rows like ``per_token``; None with estimators that need no critic.
    metrics: numbers to log: groups (deal and side), those of one rollout, those whose rewards are all
        equal, rows (actors of rollouts), rows without information, mean and spread of rewards; by side, the
        mean, standard deviation and largest magnitude of the advantages of the informative rows' sampled tokens;
        with role_baseline the baselines by role.
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
) -> TokenAdvantages:
    """Compute each trajectory's advantages by the estimator that the configuration names.

    role_baselines: for the estimator role_baseline: the running baselines, which then take this step's rewards in.
    kl_penalties: per token, already times its coefficient; taken from the reward at that token.
    values: per token, the critic's value of the state in which the token was sampled.
    Both have one row per trajectory, aligned with its ``token_ids``; entries at given tokens do not matter.

    Estimators with a baseline per group can say nothing about a group that holds only one rollout, or whose rewards
    are all equal. Such groups are kept from the estimator and get zero: verl's GRPO would give a lone row its bare
    reward as advantage, and would divide the rounding error of equal rewards by a standard deviation of zero. So
    it would the small differences that KL penalties make, which is why equality is judged without them. Likewise for
    a role all of whose rewards equal its baseline, and for a side all of whose returns are equal.

    Raises ConfigError for an estimator that cannot be used, and ValueError for one that lacks ``values`` or
    ``role_baselines``, for rows that do not fit, and, naming the rollout and actor, when segments of one actor disagree
    about the reward or two claim the same number.
    """
    estimator = config.estimator
    check_estimator(estimator)
    needs_values = ESTIMATORS[estimator].values
    if needs_values and values is None and trajectories:
        raise ValueError(f"advantage.estimator {estimator!r} needs the critic's values")
    rows = actor_rows(trajectories, by_turn=config.credit == "turn", kl_penalties=kl_penalties, values=values)
    groups = _by("group", rows)
    one_game = {name for name, members in groups.items() if len({row.task_id for row in members}) == 1}
    equal_rewards = {name for name, members in groups.items() if equal(row.reward for row in members)}

    compared, metrics = _comparisons(rows, config, role_baselines)
    advantages = [torch.zeros(row.tokens) for row in rows]
    returns = [torch.zeros(row.tokens) for row in rows]
    for side in sorted({row.side for row in rows}):
        heard = [number for number, row in enumerate(rows) if row.side == side and compared[number].by_outcome]
        found = _estimate([rows[number] for number in heard], [compared[number] for number in heard], config)
        for number, (advantage, value) in zip(heard, found, strict=True):
            advantages[number], returns[number] = advantage, value
    advantages = [
        advantage + row.gains_of_turns(comparison.turn_means) / comparison.deviation
        if comparison.by_turn
        else advantage
        for row, advantage, comparison in zip(rows, advantages, compared, strict=True)
    ]

    rewards = [row.reward for row in rows]
    informative = [comparison.by_outcome or comparison.by_turn for comparison in compared]
    metrics |= {
        "advantage/groups": len(groups),
        "advantage/groups_of_one_rollout": len(one_game),
        "advantage/groups_of_equal_rewards": len(equal_rewards - one_game),
        "advantage/actors": len(rows),
        "advantage/actors_without_information": informative.count(False),
        "advantage/reward_mean": fmean(rewards) if rewards else 0.0,
        "advantage/reward_std": pstdev(rewards) if rewards else 0.0,
    }
    tells = {number: told for row, told in zip(rows, informative, strict=True) for number in row.segments}
    return TokenAdvantages(
        per_token=spread_over_tokens(trajectories, rows, advantages),
        informative=tuple(tells[number] for number in range(len(trajectories))),
        returns=spread_over_tokens(trajectories, rows, returns) if needs_values else None,
        metrics={name: float(value) for name, value in metrics.items()}
        | _advantage_metrics(list(compress(rows, informative)), list(compress(advantages, informative))),
    )


def _comparisons(
    rows: Sequence[ActorRow], config: AdvantageConfig, role_baselines: RoleBaselines | None
) -> tuple[list[Comparison], dict[str, float]]:
    """For each row what it is compared with, and the baselines as metrics."""
    if config.estimator == ROLE_BASELINE:
        if role_baselines is None:
            raise ValueError(f"advantage.estimator {ROLE_BASELINE!r} needs role_baselines")
        by_role, metrics = against_roles(rows, config, role_baselines)
        return [by_role[row.role] for row in rows], metrics
    among, compare = ("group", within_group) if ESTIMATORS[config.estimator].groups else ("side", within_side)
    compared = {name: compare(members, config) for name, members in _by(among, rows).items()}
    return [compared[getattr(row, among)] for row in rows], {}


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
        (
            advantages[number, : row.tokens].float(),
            returns[number, : row.tokens].float() if estimator.values else torch.zeros(row.tokens),
        )
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
