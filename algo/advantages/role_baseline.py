"""A running baseline for each role, and the estimator ``role_baseline`` that compares an actor's reward with it.

A baseline over the rollouts of one deal needs several of each deal. This one needs no groups: a role's reward is
compared with what the role earned in the steps before, so every rollout may have a deal of its own.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import torch
from verl.trainer.ppo.core_algos import register_adv_est

ROLE_BASELINE = "role_baseline"
_EPSILON = 1e-6  # verl's, in its estimators that divide by a deviation


@dataclass(frozen=True)
class Baseline:
    """What rewards are compared with.

    mean: of the steps before; in the first step of its own rewards.
    deviation: root of the mean squared distance of rewards from the baselines that they were compared with. Unlike the
        mean it takes in the present step already: a first surprise after many equal rewards would else be divided by
        next to nothing.
    """

    mean: float
    deviation: float


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
