"""From rewards to advantages: verl's estimators, with a baseline per deal and side, and our own per role.

Werewolf is zero-sum: over both sides of a rollout the rewards cancel, so a baseline across sides would
compare the luck of the cards. Rollouts of one group share their deal, hence the baseline of an actor is
taken over the actors of its side in all rollouts of its group: verl's group index is "group_id/side".
Estimators that standardise over the whole batch (reinforce_plus_plus, gae …) see one side at a time.

An actor's rollout is one row for the estimator, however many segments (token sequences) it was cut into:
its sampled tokens one after another, the actor's reward on the last of them. So a baseline counts
each actor of each rollout once, and the segments of an actor share its advantage.

Credit. With ``credit=game`` the reward R of a row is the actor's whole reward. With ``credit=turn`` it is
split: r_k is what turn k adds (``Trajectory.turn_rewards``), O = R - sum of r_k all the rest, which
is the outcome, and what turns added that are in no trajectory. Then

- estimators of returns (gae, gae_by_turn, reinforce_plus_plus) get r_k at the last token of turn k, and O at the last
  token of all;
- estimators of outcomes (grpo, rloo_by_rollout, role_baseline and all others) turn O into A as they would R, and a
  token of turn k has the advantage A + (r_k - m) / s. m is the mean of what answers to the
  same question earned in the group (deal and side), with role_baseline the running mean of what the role earned
  by them: a reward that only votes can earn must not speak against every speech. s is the standard deviation of
  O that the estimator itself divides by; 1 where it divides by none, and where all O are equal. With ``look_ahead`` = g
  above zero r_k gives way to r_k + g r_(k+1) + g^2 r_(k+2) + ..., in A and in m.
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
from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY, get_adv_estimator_fn

from algo.advantages.comparison import Baseline, Comparison, equal
from algo.advantages.gae_by_turn import GAE_BY_TURN
from algo.advantages.group_baseline import within_group
from algo.advantages.leave_rollout_out import RLOO_BY_ROLLOUT
from algo.advantages.registry import needs_groups, needs_values, requires, takes
from algo.advantages.role_baseline import ROLE_BASELINE, RoleBaselines, against_roles
from algo.advantages.side_returns import returns_differ
from algo.advantages.turn_credit import with_turn_credit
from algo.sequences.actor_rows import ActorRow, PerToken, actor_rows, spread_over_tokens
from algo.sequences.trajectories import Trajectory
from configs.section import ConfigError
from configs.sections.training import AdvantageConfig

# What an estimator may ask for that a finished rollout cannot give, and why.
_UNAVAILABLE = {
    "reward_baselines": "it needs the reward of a greedily played copy of every game",
    "sum_pi_squared": "it needs the sum of squared probabilities at every token, which is not recorded",
}
_MISNAMED = {
    name: f"it leaves out the row alone, while other actors of the same rollout stay in its baseline: use "
    f"{RLOO_BY_ROLLOUT}, which leaves out the whole rollout"
    for name in ("rloo", "rloo_vectorized")
}

RETURN_ESTIMATORS = frozenset({"gae", GAE_BY_TURN, "reinforce_plus_plus"})
"""Estimators for which it matters where in a row a reward lies; to all others a row is worth the sum of its rewards."""


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


def check_estimator(config: AdvantageConfig) -> None:
    """Raise ConfigError, naming what is registered, if the estimator cannot be used here, or not like this."""
    name = config.estimator
    if name not in ADV_ESTIMATOR_REGISTRY:
        raise ConfigError(
            f"advantage.estimator {name!r} is not registered in verl; registered: {', '.join(_usable_estimators())}"
        )
    if reason := _MISNAMED.get(name):
        raise ConfigError(f"advantage.estimator {name!r} does not mean here what its name says: {reason}")
    for parameter, reason in _UNAVAILABLE.items():
        if requires(name, parameter):
            raise ConfigError(
                f"advantage.estimator {name!r} cannot be used: {reason}. "
                f"Choose one of {', '.join(_usable_estimators())}"
            )
    if config.look_ahead and name in RETURN_ESTIMATORS:
        raise ConfigError(
            f"advantage.look_ahead: {name} looks ahead by itself, as gamma and lam say; set look_ahead to 0, or choose "
            "an estimator of outcomes such as grpo or role_baseline"
        )


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
    check_estimator(config)
    if needs_values(estimator) and values is None and trajectories:
        raise ValueError(f"advantage.estimator {estimator!r} needs the critic's values")
    if estimator == ROLE_BASELINE and role_baselines is None:
        raise ValueError(f"advantage.estimator {estimator!r} needs role_baselines")
    rows = actor_rows(
        trajectories,
        by_turn=config.credit == "turn",
        look_ahead=config.look_ahead,
        kl_penalties=kl_penalties,
        values=values,
    )
    groups: dict[str, list[ActorRow]] = defaultdict(list)
    for row in rows:
        groups[row.group].append(row)
    one_game = {name for name, members in groups.items() if len({row.task_id for row in members}) == 1}
    equal_rewards = {name for name, members in groups.items() if equal(row.reward for row in members)}

    compared, metrics = _comparisons(rows, groups, one_game, config, role_baselines)
    advantages = [torch.zeros(row.tokens) for row in rows]
    returns = [torch.zeros(row.tokens) for row in rows]
    for side in sorted({row.side for row in rows}):
        heard = [number for number, row in enumerate(rows) if row.side == side and compared[number].by_outcome]
        found = _estimate([rows[number] for number in heard], [compared[number].baseline for number in heard], config)
        for number, (advantage, value) in zip(heard, found, strict=True):
            advantages[number], returns[number] = advantage, value
    advantages = [with_turn_credit(*each) for each in zip(rows, advantages, compared, strict=True)]

    informative = [comparison.by_outcome or comparison.by_turn for comparison in compared]
    metrics |= {
        "advantage/groups": len(groups),
        "advantage/groups_of_one_game": len(one_game),
        "advantage/groups_of_equal_rewards": len(equal_rewards - one_game),
        "advantage/seats": len(rows),
        "advantage/seats_without_information": informative.count(False),
    }
    tells = {number: told for row, told in zip(rows, informative, strict=True) for number in row.segments}
    return TokenAdvantages(
        per_token=spread_over_tokens(trajectories, rows, advantages),
        informative=tuple(tells[number] for number in range(len(trajectories))),
        returns=spread_over_tokens(trajectories, rows, returns) if needs_values(estimator) else None,
        metrics={name: float(value) for name, value in metrics.items()}
        | _reward_metrics(rows)
        | _advantage_metrics(list(compress(rows, informative)), list(compress(advantages, informative))),
    )


def _comparisons(
    rows: Sequence[ActorRow],
    groups: dict[str, list[ActorRow]],
    one_game: set[str],
    config: AdvantageConfig,
    role_baselines: RoleBaselines | None,
) -> tuple[list[Comparison], dict[str, float]]:
    """For each row what it is compared with, and the baselines as metrics."""
    if config.estimator == ROLE_BASELINE:
        assert role_baselines is not None
        return against_roles(rows, config, role_baselines)
    if needs_groups(config.estimator):
        by_group = {
            name: Comparison(False) if name in one_game else within_group(members, config)
            for name, members in groups.items()
        }
        return [by_group[row.group] for row in rows], {}
    by_side = {row.side: [other for other in rows if other.side == row.side] for row in rows}
    tells = {side: returns_differ(members, config) for side, members in by_side.items()}
    return [Comparison(tells[row.side]) for row in rows], {}


def _estimate(
    rows: Sequence[ActorRow], baselines: Sequence[Baseline | None], config: AdvantageConfig
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Advantages and returns of each row's sampled tokens: float32, shape (sampled tokens,)."""
    if not rows:
        return []
    shape = len(rows), max(row.tokens for row in rows)
    mask, token_level_rewards, values = torch.zeros(shape), torch.zeros(shape), torch.zeros(shape)
    turn_ends = torch.zeros(shape, dtype=torch.bool)
    for number, row in enumerate(rows):
        mask[number, : row.tokens] = 1.0
        turn_ends[number, [end - 1 for end in row.turn_ends]] = True
        token_level_rewards[number, : row.tokens] = row.token_rewards(config.estimator in RETURN_ESTIMATORS)
        if row.values is not None:
            values[number, : row.tokens] = row.values
    offered: dict[str, Any] = {
        "token_level_rewards": token_level_rewards,
        "response_mask": mask,
        "index": np.array([row.group for row in rows], dtype=object),
        "rollouts": np.array([row.task_id for row in rows], dtype=object),
        "values": values,
        "turn_ends": turn_ends,
        "gamma": config.gamma,
        "lam": config.lam,
        "norm_adv_by_std_in_grpo": config.normalize_by_std,
        "normalize_by_std": config.normalize_by_std,
        "baseline_means": torch.tensor([each.mean if each else 0.0 for each in baselines]),
        "baseline_deviations": torch.tensor([each.deviation if each else 1.0 for each in baselines]),
        "config": AlgoConfig(
            adv_estimator=config.estimator,
            gamma=config.gamma,
            lam=config.lam,
            norm_adv_by_std_in_grpo=config.normalize_by_std,
        ),
    }
    arguments = {name: value for name, value in offered.items() if takes(config.estimator, name)}
    advantages, returns = get_adv_estimator_fn(config.estimator)(**arguments)
    needs_returns = needs_values(config.estimator)
    return [
        (
            advantages[number, : row.tokens].float(),
            returns[number, : row.tokens].float() if needs_returns else torch.zeros(row.tokens),
        )
        for number, row in enumerate(rows)
    ]


def _reward_metrics(rows: Sequence[ActorRow]) -> dict[str, float]:
    rewards = [row.reward for row in rows]
    return {
        "advantage/reward_mean": fmean(rewards) if rows else 0.0,
        "advantage/reward_std": pstdev(rewards) if rows else 0.0,
    }


def _advantage_metrics(rows: Sequence[ActorRow], advantages: Sequence[torch.Tensor]) -> dict[str, float]:
    metrics: dict[str, float] = {}
    for side in sorted({row.side for row in rows}):
        found = torch.cat([advantage for row, advantage in zip(rows, advantages, strict=True) if row.side == side])
        metrics[f"advantage/{side}/mean"] = found.mean().item()
        metrics[f"advantage/{side}/std"] = found.std(correction=0).item()
        metrics[f"advantage/{side}/abs_max"] = found.abs().max().item()
    return metrics


def _usable_estimators() -> list[str]:
    return sorted(
        name
        for name in ADV_ESTIMATOR_REGISTRY.keys() - _MISNAMED.keys()
        if not any(requires(name, parameter) for parameter in _UNAVAILABLE)
    )
