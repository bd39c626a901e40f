"""A running baseline for each role, and the estimator ``role_baseline`` that compares an actor's reward with it.

A baseline over the rollouts of one deal needs several of each deal. This one needs no groups: a role's reward is
compared with what the role earned in the steps before, so every rollout may have a deal of its own. Suits games whose
roles earn unlike amounts, where deals say less of a reward than the role does. The reinforcement baseline of Williams,
1992 (https://doi.org/10.1007/BF00992696), one for each role.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import torch
from verl.trainer.ppo.core_algos import register_adv_est

from algo.advantages.comparison import EQUAL_WITHIN, Baseline, Comparison, differ_from
from algo.advantages.turn_credit import rewards_by_question
from algo.sequences.actor_rows import ActorRow
from configs.sections.training import AdvantageConfig

ROLE_BASELINE = "role_baseline"
_EPSILON = 1e-6  # verl's, in its estimators that divide by a deviation


class RoleBaselines:
    """Exponentially decaying mean and deviation of rewards by name (a role).

    In each step, with x the step's rewards of a name and d the decay:
    baseline b = mean of the steps before (first step: mean(x)), then
    variance <- d * variance + (1 - d) * mean((x - b)^2), mean <- d * mean + (1 - d) * mean(x);
    in the first step variance = mean((x - b)^2) and mean = mean(x).
    """

    def __init__(self, decay: float) -> None:
        """decay: weight of the past at each step, from 0 to less than 1."""
        if not 0 <= decay < 1:
            raise ValueError(f"the decay of a running baseline must be at least 0 and below 1, not {decay}")
        self._decay = decay
        self._moments: dict[str, tuple[float, float]] = {}  # name -> mean, variance

    def compare(self, rewards: Mapping[str, Sequence[float]]) -> dict[str, Baseline]:
        """The baselines of a step's rewards, by name; then takes these rewards in. Every name has at least one."""
        found: dict[str, Baseline] = {}
        for name, values in rewards.items():
            mean = fmean(values)
            baseline, variance = self._moments.get(name, (mean, None))
            distance = fmean((value - baseline) ** 2 for value in values)
            variance = distance if variance is None else self._mix(variance, distance)
            self._moments[name] = self._mix(baseline, mean), variance
            found[name] = Baseline(baseline, math.sqrt(variance))
        return found

    def _mix(self, past: float, present: float) -> float:
        return self._decay * past + (1 - self._decay) * present

    def state(self) -> dict[str, dict[str, float]]:
        """Everything but the decay, JSON only: name -> mean and variance; ``from_state`` reads it back."""
        return {name: {"mean": mean, "variance": variance} for name, (mean, variance) in self._moments.items()}

    @classmethod
    def from_state(cls, state: Mapping[str, Mapping[str, float]], decay: float) -> "RoleBaselines":
        """Go on from what ``state`` returned; the decay is the configuration's. Raises KeyError for anything else."""
        restored = cls(decay)
        restored._moments = {name: (moments["mean"], moments["variance"]) for name, moments in state.items()}
        return restored


@register_adv_est(ROLE_BASELINE)
def compute_role_baseline_advantage(
    token_level_rewards: torch.Tensor,
    response_mask: torch.Tensor,
    baseline_means: torch.Tensor,
    baseline_deviations: torch.Tensor,
    normalize_by_std: bool,
    **_: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(reward - baseline of the row's role) / its deviation, at every sampled token.

    token_level_rewards, response_mask: shape (rows, tokens).
    baseline_means, baseline_deviations: of each row's role, shape (rows,).
    normalize_by_std: False leaves out the division.

    Returns the advantages twice, shape (rows, tokens), as verl's estimators of outcomes do.
    """
    scores = token_level_rewards.sum(dim=-1) - baseline_means
    if normalize_by_std:
        scores = scores / (baseline_deviations + _EPSILON)
    advantages = scores.unsqueeze(-1) * response_mask
    return advantages, advantages


def against_roles(
    rows: Sequence[ActorRow], config: AdvantageConfig, role_baselines: RoleBaselines
) -> tuple[list[Comparison], dict[str, float]]:
    """For each row what its role earned before, and the baselines as metrics; they take the rows' rewards in."""
    by_role: dict[str, list[ActorRow]] = defaultdict(list)
    for row in rows:
        by_role[row.role].append(row)
    outcomes = {role: [row.outcome - row.kl_penalty for row in members] for role, members in by_role.items()}
    turns = {role: rewards_by_question(members) for role, members in by_role.items()}
    baselines = role_baselines.compare(outcomes)
    of_questions = role_baselines.compare(
        {f"{role}/{question}": rewards for role, asked in turns.items() for question, rewards in asked.items()}
    )
    comparisons = {}
    for role in by_role:
        baseline = baselines[role]
        means = {question: of_questions[f"{role}/{question}"].mean for question in turns[role]}
        divides = config.normalize_by_std and baseline.deviation > EQUAL_WITHIN
        comparisons[role] = Comparison(
            by_outcome=differ_from(outcomes[role], baseline.mean),
            by_turn=any(differ_from(rewards, means[question]) for question, rewards in turns[role].items()),
            turn_means=means,
            deviation=baseline.deviation if divides else 1.0,
            baseline=baseline,
        )
    metrics = {f"advantage/baseline/{role}": baseline.mean for role, baseline in baselines.items()}
    metrics |= {f"advantage/deviation/{role}": baseline.deviation for role, baseline in baselines.items()}
    return [comparisons[row.role] for row in rows], metrics
