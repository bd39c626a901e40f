"""A step's sequences through the models: what advantages need of them, and the update itself.

Blocking calls of ``algo.training.engine``, to be made on the trainer's thread.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch

from algo.advantages.correction import correct_for_older_weights
from algo.advantages.credit import kl_in_reward, weigh_advantages
from algo.advantages.registry import needs_values
from algo.loop.agreement import check_agreement, logprob_agreement
from algo.sequences.batch import PerToken, build_batch
from algo.sequences.targets import TargetRow
from algo.sequences.trajectories import Trajectory
from algo.training.engine import Engine
from configs.schema import Config


@dataclass(frozen=True)
class Assessment:
    """What the models say of trajectories before there are advantages; None where the configuration has no use for it.

    values: the critic's, per token. kl_penalties: what each token loses of its reward for straying from the reference.
    Rows as the trajectories, each aligned with its ``token_ids``.
    """

    values: list[torch.Tensor] | None = None
    kl_penalties: list[torch.Tensor] | None = None


def assess(config: Config, engine: Engine, trajectories: Sequence[Trajectory]) -> Assessment:
    """Compute the critic's values and the reference's KL where the advantages need them.

    trajectories: all of one policy.
    """
    critic, reference = needs_values(config.advantage.estimator), config.reference.kl == "reward"
    if not trajectories or not (critic or reference):
        return Assessment()
    engine.select(trajectories[0].learner)
    batch = build_batch(trajectories, temperature=config.rollout.temperature)
    return Assessment(
        values=engine.values(batch) if critic else None,
        kl_penalties=kl_in_reward(engine.log_probs(batch), engine.reference_log_probs(batch), config.reference)
        if reference
        else None,
    )


@dataclass(frozen=True)
class Update:
    """A finished update.

    trained: the sequences of the batch; ``advantages`` and ``log_probs`` (of the weights before the update) are rows
        aligned with each one's ``token_ids``.
    left_out: model turns that the correction for older weights left out, by reason.
    metrics: verl's, and ours about the agreement of log-probs and the policy lag.
    """

    trained: tuple[Trajectory, ...]
    advantages: list[torch.Tensor]
    log_probs: list[torch.Tensor]
    left_out: Counter[str]
    metrics: dict[str, float]


def update(
    config: Config,
    engine: Engine,
    trajectories: Sequence[Trajectory],
    advantages: PerToken,
    returns: PerToken | None,
    values: PerToken | None,
    policy_version: int,
    train_policy: bool = True,
    targets: Sequence[TargetRow] = (),
    target_weight: float = 0.0,
) -> Update:
    """Train one policy on its selected sequences.

    advantages, returns, values: rows as the trajectories, each aligned with its ``token_ids``.
    policy_version: of the weights that are about to be updated.
    train_policy: False trains the critic alone (``critic.warmup_steps``).
    targets, target_weight: what else is to become likelier in the same steps, and what that weighs; without sequences
        to train on nothing does.
    Raises WeightsNotServed when what vLLM played is not what the trainer computes.
    """
    engine.select(trajectories[0].learner)
    temperature = config.rollout.temperature
    plain = build_batch(trajectories, temperature=temperature)
    log_probs = engine.log_probs(plain)
    compared = logprob_agreement(trajectories, log_probs, policy_version)
    if compared:
        check_agreement(config, compared, "log-probs of the sampled tokens")
    metrics = {f"logprobs/rollout_difference_{name}": value for name, value in compared.items()}
    corrected = correct_for_older_weights(trajectories, log_probs, policy_version, config.training.rollout_correction)
    metrics |= corrected.metrics

    def kept(rows: PerToken) -> list[torch.Tensor]:
        return [torch.as_tensor(rows[row], dtype=torch.float32) for row in corrected.rows]

    done = Update(corrected.trajectories, kept(advantages), kept(log_probs), corrected.left_out, metrics)
    if not done.trained:
        return done
    weighed = weigh_advantages(done.trained, done.advantages, config.advantage.weigh)
    batch_of = partial(
        build_batch,
        done.trained,
        weighed,
        temperature=temperature,
        old_log_probs=done.log_probs,
        reference_log_probs=kept(engine.reference_log_probs(plain)) if config.reference.kl == "loss" else None,
        importance_weights=corrected.importance_weights,
        values=None if values is None else kept(values),
        returns=None if returns is None else kept(returns),
    )
    batch = batch_of()
    if returns is not None:
        metrics |= engine.update_critic(batch)
    if train_policy:
        if targets:
            batch = batch_of(targets=targets)
            metrics["targets/rows"] = float(len(targets))
        metrics |= engine.update(batch, target_weight)
    return done
