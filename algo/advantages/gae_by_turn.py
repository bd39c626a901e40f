"""GAE whose lambda counts turns: what a critic expects is trusted less at every turn that passes, not at every token.

With verl's ``gae`` and lambda 0.95 a reward at the end of a reply of 100 tokens reaches its first token by 0.6 %: all
credit lies with the last words. Here the trace is as long within a turn as the discount lets it be, and fades by lambda
from a turn to the one before (Schulman et al., 2016, arXiv:1506.02438, with a step for each turn). Suits long replies
with few decisions.
"""

from typing import Any

import torch
import verl.utils.torch_functional as verl_F
from verl.trainer.ppo.core_algos import register_adv_est

GAE_BY_TURN = "gae_by_turn"
"""Name of the estimator in ``advantage.estimator``."""


@register_adv_est(GAE_BY_TURN)
def compute_gae_by_turn_advantage_return(
    token_level_rewards: torch.Tensor,
    values: torch.Tensor,
    response_mask: torch.Tensor,
    turn_ends: torch.Tensor,
    gamma: float,
    lam: float,
    **_: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Advantages, whitened over all tokens as verl's gae does, and returns; shapes (rows, tokens).

    token_level_rewards, values, response_mask: shape (rows, tokens), sampled tokens from the left, then padding.
    turn_ends: bool, likewise, whether a token is the last of its turn.
    """
    fades = torch.where(turn_ends.bool(), lam, 1.0)
    advantage, next_value = torch.zeros(len(values)), torch.zeros(len(values))
    found = torch.zeros_like(values)
    for token in reversed(range(values.shape[1])):
        delta = token_level_rewards[:, token] + gamma * next_value - values[:, token]
        advantage = (delta + gamma * fades[:, token] * advantage) * response_mask[:, token]
        next_value = values[:, token] * response_mask[:, token]
        found[:, token] = advantage
    return verl_F.masked_whiten(found, response_mask), found + values
