"""Scales advantages so that every actor, rollout or turn weighs alike in the loss instead of every sequence.

verl has no weights of sequences. A policy loss that is proportional to its advantage (with a factor that is not
negative) takes them through the advantage: scaled by w, a sequence adds w times its loss and w times its gradient.
``seat`` and ``game`` suit rollouts that are cut into unlike numbers of segments, ``turn`` decisions of unlike lengths.
The rule is ours.
"""

from collections import Counter
from collections.abc import Hashable, Sequence

import torch

from algo.sequences.trajectories import Trajectory
from configs.section import ConfigError
from configs.sections.training import AdvantageConfig, TrainingConfig

PROPORTIONAL_LOSSES = frozenset({"vanilla", "dppo_tv", "dppo_kl", "gspo", "sapo", "gpg", "cispo"})
"""Policy losses of verl's that look at an advantage's sign and multiply by it, and use it in no other way. Others
compare it with thresholds and with other tokens' advantages, or add what does not scale with it."""

_EVEN_AGGREGATION = "seq-mean-token-mean"


def check_weighing(advantage: AdvantageConfig, training: TrainingConfig) -> None:
    """Raise ConfigError where scaled advantages would not weigh as ``advantage.weigh`` says."""
    if advantage.weigh == "sequence":
        return
    if training.loss_agg_mode != _EVEN_AGGREGATION:
        raise ConfigError(
            f"advantage.weigh={advantage.weigh} needs training.loss_agg_mode={_EVEN_AGGREGATION}: with "
            f"{training.loss_agg_mode!r} a sequence weighs by its tokens, however it is scaled"
        )
    if training.policy_loss not in PROPORTIONAL_LOSSES:
        raise ConfigError(
            f"advantage.weigh={advantage.weigh} needs a policy loss that is proportional to the advantage; "
            f"{training.policy_loss!r} is not: use one of {', '.join(sorted(PROPORTIONAL_LOSSES))}"
        )


def weigh_advantages(
    trajectories: Sequence[Trajectory], per_token: Sequence[torch.Tensor], weigh: str
) -> list[torch.Tensor]:
    """Scale the advantages of the sequences that reach the update; their mean weight stays 1.

    weigh: ``sequence`` changes nothing. ``seat`` and ``game``: each actor of each rollout (each rollout) weighs alike,
        and its sequences share its weight evenly: with N sequences of U units, a sequence of a unit that has n gets the
        factor N / (U * n). ``turn``: each turn weighs alike, whatever its length and its sequence: with N sequences of
        K turns, a token of a turn of n tokens, in a sequence of T sampled tokens, gets the factor N * T / (K * n),
        since the loss divides by T.

    A step's mini-batches are each a mean of their own, so the weights are exact over the step as a whole.
    """
    if weigh == "sequence":
        return list(per_token)
    if weigh == "turn":
        turns = sum(len(trajectory.turn_ends) for trajectory in trajectories)
        return [
            row * torch.tensor(trajectory.turn_shares()) * (len(trajectories) * sum(trajectory.loss_mask) / turns)
            for row, trajectory in zip(per_token, trajectories, strict=True)
        ]
    units: list[Hashable] = [
        trajectory.task_id if weigh == "game" else (trajectory.task_id, trajectory.actor) for trajectory in trajectories
    ]
    sizes = Counter(units)
    return [row * (len(units) / (len(sizes) * sizes[unit])) for row, unit in zip(per_token, units, strict=True)]
