"""The KL against the reference policy, taken from the reward token by token (``reference.kl=reward``).

Suits runs that drift away from what they could say: it reaches the advantages of earlier tokens, and the critic (PPO
as in Ziegler et al., 2019, arXiv:1909.08593). With ``reference.kl=loss`` it is a term of verl's ``ppo_loss`` instead,
and nothing here is used.
"""

from collections.abc import Sequence

import torch
from verl.trainer.ppo.core_algos import kl_penalty

from configs.sections.training import ReferenceConfig


def kl_in_reward(
    log_probs: Sequence[torch.Tensor], reference_log_probs: Sequence[torch.Tensor], reference: ReferenceConfig
) -> list[torch.Tensor]:
    """What each token's reward loses: ``reference.coef`` times verl's estimate of the KL by ``reference.penalty``.

    log_probs and reference_log_probs have one row per trajectory, aligned with its ``token_ids``, in nats; so has the
    result, in units of reward. Only entries at sampled tokens mean anything. Raises ValueError when rows do not match.
    """
    penalties = []
    for row, reference_row in zip(log_probs, reference_log_probs, strict=True):
        if row.shape != reference_row.shape:
            raise ValueError(f"log-probs of {len(row)} tokens and {len(reference_row)} of the reference do not match")
        penalties.append(reference.coef * kl_penalty(row, reference_row, reference.penalty))  # pyright: ignore[reportArgumentType] old names of tensors
    return penalties
