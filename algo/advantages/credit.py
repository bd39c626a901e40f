"""Credit assignment: rewards per token, and the weights of turns in the loss.

With ``advantage.credit=game`` the reward R of a row is the actor's whole reward. With ``credit=turn`` it is split: r_k
is the reward of turn k (``Trajectory.turn_rewards``), O = R - sum of r_k the rest: the outcome, and rewards of turns
that are in no trajectory. Then

- estimators of returns (gae, reinforce_plus_plus) get r_k at the last token of turn k, and O at the last token of all;
- estimators of outcomes (grpo, role_baseline and all others) map O to A as they would R, and a token of turn k has the
  advantage A + (r_k - m) / s. m is the mean reward of turns with the same question in the group (deal and side), with
  role_baseline the role's running mean for the question: a reward for votes only must not lower the advantage of every
  speech. s is the standard deviation of O by which the estimator divides; 1 if it does not, or if all O are equal.
  With role_baseline, where O differ, both are divided by the larger of the running deviations of O and of r_k - m,
  over all turns.
  Rewards per turn: Zeng et al., 2025, arXiv:2505.11821.

``credit=branch`` is credit=turn with outcomes by ``branching``.
"""

from collections.abc import Sequence

import torch
from verl.trainer.ppo.core_algos import kl_penalty

from algo.advantages.registry import ESTIMATORS
from algo.sequences.trajectories import Trajectory
from configs.section import ConfigError
from configs.sections.training import AdvantageConfig, ReferenceConfig, TrainingConfig

PROPORTIONAL_LOSSES = frozenset({"vanilla", "dppo_tv", "dppo_kl", "gspo", "sapo", "gpg", "cispo"})
"""verl's policy losses that only use an advantage's sign and multiply by it. Others compare it with thresholds or other
tokens' advantages, or add terms that do not scale with it."""

_EVEN_AGGREGATION = "seq-mean-token-mean"


def kl_in_reward(
    log_probs: Sequence[torch.Tensor], reference_log_probs: Sequence[torch.Tensor], reference: ReferenceConfig
) -> list[torch.Tensor]:
    """KL penalty of each token with ``reference.kl=reward`` (PPO as in Ziegler et al., 2019, arXiv:1909.08593).

    log_probs and reference_log_probs have one row per trajectory, aligned with its ``token_ids``, in nats; so has the
    result, in units of reward: ``reference.coef`` times verl's estimate of the KL by ``reference.penalty``. Only
    entries at sampled tokens are valid.
    """
    return [
        reference.coef * kl_penalty(row, other, reference.penalty)  # pyright: ignore[reportArgumentType] old names of tensors
        for row, other in zip(log_probs, reference_log_probs, strict=True)
    ]


def check_credit(advantage: AdvantageConfig, training: TrainingConfig) -> None:
    """Raise ConfigError if ``advantage.credit`` does not work with the estimator or the loss, or ``weigh`` with it."""
    if advantage.credit != "game" and ESTIMATORS[advantage.estimator].scales:
        raise ConfigError(
            f"advantage.credit={advantage.credit} does not work with advantage.estimator={advantage.estimator}, which "
            f"scales outcomes by a factor of the whole batch, but not the rewards of turns: use grpo"
        )
    if advantage.weigh == "turn" and training.loss_agg_mode != _EVEN_AGGREGATION:
        raise ConfigError(
            f"advantage.weigh=turn needs training.loss_agg_mode={_EVEN_AGGREGATION}: with "
            f"{training.loss_agg_mode!r} the weight of a sequence depends on its number of tokens"
        )
    for setting, weighs in (("weigh=turn", advantage.weigh == "turn"), ("credit=branch", advantage.credit == "branch")):
        if weighs and training.policy_loss not in PROPORTIONAL_LOSSES:
            raise ConfigError(
                f"advantage.{setting} needs a policy loss that is proportional to the advantage; "
                f"{training.policy_loss!r} is not: use one of {', '.join(sorted(PROPORTIONAL_LOSSES))}"
            )


def weigh_advantages(
    trajectories: Sequence[Trajectory], per_token: Sequence[torch.Tensor], weigh: str
) -> list[torch.Tensor]:
    """Scale the advantages of the update's sequences, with mean weight 1.

    verl has no sequence weights, but a policy loss proportional to the advantage can be weighted through it.
    weigh: ``sequence`` changes nothing. ``turn``: all turns have the same weight: with N sequences of K turns, a token
        of a turn of n tokens, in a sequence of T sampled tokens, gets the factor N * T / (K * n): the loss divides by
        T.

    Each mini-batch is a mean of its own, so the weights are exact over the whole step only.
    """
    if weigh == "sequence":
        return list(per_token)
    turns = sum(len(trajectory.turn_ends) for trajectory in trajectories)
    return [
        row * torch.tensor(trajectory.turn_shares()) * (len(trajectories) * sum(trajectory.loss_mask) / turns)
        for row, trajectory in zip(per_token, trajectories, strict=True)
    ]
