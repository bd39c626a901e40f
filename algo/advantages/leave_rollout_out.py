"""RLOO over whole rollouts: what a seat earned less the mean of what others earned in the group's other rollouts.

verl's ``rloo`` leaves out the row alone (Ahmadian et al., 2024, arXiv:2402.14740, where a rollout is a row). Several
actors of one rollout share its luck and often its reward: a baseline that counts them holds part of what it is compared
with. Suits groups of few rollouts; where each rollout has one actor of a side, it is RLOO itself.
"""

from collections import defaultdict
from typing import Any

import numpy as np
import torch
from verl.trainer.ppo.core_algos import register_adv_est

RLOO_BY_ROLLOUT = "rloo_by_rollout"
"""Name of the estimator in ``advantage.estimator``."""


@register_adv_est(RLOO_BY_ROLLOUT)
def compute_rloo_by_rollout_advantage(
    token_level_rewards: torch.Tensor, response_mask: torch.Tensor, index: np.ndarray, rollouts: np.ndarray, **_: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """Reward less the mean reward of the group's rows of other rollouts, at every sampled token.

    token_level_rewards, response_mask: shape (rows, tokens). index, rollouts: each row's group and rollout, by name.

    Returns the advantages twice, shape (rows, tokens), as verl's estimators of outcomes do. Each group must have two
    rollouts at least.
    """
    scores = token_level_rewards.sum(dim=-1)
    sums: dict[tuple[Any, ...], float] = defaultdict(float)
    counts: dict[tuple[Any, ...], int] = defaultdict(int)
    for score, group, rollout in zip(scores.tolist(), index, rollouts, strict=True):
        for key in ((group,), (group, rollout)):
            sums[key] += score
            counts[key] += 1
    baselines = torch.tensor(
        [
            (sums[group,] - sums[group, rollout]) / (counts[group,] - counts[group, rollout])
            for group, rollout in zip(index, rollouts, strict=True)
        ]
    )
    advantages = (scores - baselines).unsqueeze(-1) * response_mask
    return advantages, advantages
