"""From a step's trajectories to the update of each learning policy, from its own trajectories only.

``values_and_kl`` and ``update_policy`` block in ``algo.training.engine``: they run on the trainer's thread.
"""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch

from algo.advantages.baseline import RoleBaselines
from algo.advantages.branching import NO_BRANCHES, BranchCredit
from algo.advantages.correction import apply_rollout_correction
from algo.advantages.credit import kl_in_reward, weigh_advantages
from algo.advantages.estimators import TokenAdvantages, token_advantages
from algo.advantages.registry import needs_values
from algo.loop.agreement import check_agreement, logprob_agreement
from algo.loop.run_context import RunContext
from algo.rollouts.played import PlayedRollouts, UnusableRollouts
from algo.sequences.batch import PerToken, build_batch
from algo.sequences.selection import Selection, select_sequences
from algo.sequences.targets import TargetRow
from algo.sequences.trajectories import Trajectory
from algo.sequences.vocabulary import vocabulary_of
from algo.training.engine import Engine
from configs.schema import Config
from configs.sections.policies import SOLE_LEARNER

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class LearnerShare:
    """One learning policy's trajectories of a step.

    values: the critic's, per token; None without one. advantages, selected: rows aligned with ``trajectories``.
    """

    learner: str
    trajectories: tuple[Trajectory, ...]
    values: list[torch.Tensor] | None
    advantages: TokenAdvantages
    selected: Selection


@dataclass(frozen=True)
class Update:
    """A finished update.

    trained: the sequences of the batch; ``advantages`` and ``log_probs`` (before the update) are rows aligned with
        their ``token_ids``.
    left_out: model turns that rollout correction rejected, by reason.
    metrics: verl's, and ours about log-prob differences and the policy lag.
    """

    trained: tuple[Trajectory, ...]
    advantages: list[torch.Tensor]
    log_probs: list[torch.Tensor]
    left_out: Counter[str]
    metrics: dict[str, float]


def by_learner(config: Config, trajectories: Sequence[Trajectory]) -> dict[str, tuple[Trajectory, ...]]:
    """The trajectories of each learning policy.

    Raises UnusableRollouts for a trajectory of another policy, or with tokens that the model does not have.
    """
    found: dict[str, list[Trajectory]] = {learner: [] for learner in config.learners}
    vocabulary = vocabulary_of(config.model.path)
    for trajectory in trajectories:
        learner = trajectory.learner or SOLE_LEARNER
        if learner not in found:
            raise UnusableRollouts(f"{trajectory.task_id}, {trajectory.actor}: {learner!r} does not learn in this run")
        if max(trajectory.token_ids) >= vocabulary:  # it would end the trainer, on a GPU without a reason
            raise UnusableRollouts(
                f"{trajectory.task_id}, {trajectory.actor}: token id {max(trajectory.token_ids)} is not among "
                f"model.path's {vocabulary}"
            )
        found[learner].append(trajectory)
    return {learner: tuple(own) for learner, own in found.items()}


async def compute_advantages(
    run: RunContext,
    by_policy: Mapping[str, Sequence[Trajectory]],
    role_baselines: RoleBaselines,
    branches: BranchCredit = NO_BRANCHES,
) -> list[LearnerShare]:
    """Advantages per token and the selected sequences of every learning policy.

    by_policy: of ``by_learner``. role_baselines: of the run; updated with the step's rewards. A role belongs to one
    policy only. branches: the credit from branches among the trajectories.
    """
    config, shares = run.config, []
    for learner, own in by_policy.items():
        values, kl_penalties = await run.trainer.run(values_and_kl, config, run.engine, own)
        advantages = token_advantages(
            own,
            config.advantage,
            role_baselines=role_baselines,
            kl_penalties=kl_penalties,
            values=values,
            branches=branches,
        )
        selected = select_sequences(
            own,
            advantages.informative,
            config.selection,
            f"{config.run.seed}/{run.state.step}",
            oldest_version_allowed=run.state.policy_version - config.rollout.max_policy_lag,
        )
        shares.append(LearnerShare(learner, own, values, advantages, selected))
    return shares


def values_and_kl(
    config: Config, engine: Engine, trajectories: Sequence[Trajectory]
) -> tuple[list[torch.Tensor] | None, list[torch.Tensor] | None]:
    """The critic's values, and the KL penalties in the rewards.

    trajectories: all of one policy. Both have a row for each, aligned with its ``token_ids``; None if the advantages do
    not use it.
    """
    critic, reference = needs_values(config.advantage.estimator), config.reference.kl == "reward"
    if not trajectories or not (critic or reference):
        return None, None
    engine.select(trajectories[0].learner)
    batch = build_batch(trajectories, temperature=config.rollout.temperature)
    values = engine.values(batch) if critic else None
    if not reference:
        return values, None
    return values, kl_in_reward(engine.log_probs(batch), engine.reference_log_probs(batch), config.reference)


async def update_policies(
    run: RunContext, shares: Sequence[LearnerShare], played: PlayedRollouts, title: str
) -> Update:
    """Update every policy with selected sequences, one after another.

    shares: of ``compute_advantages``. title: of the step, for the log.
    Returns the combined update, with metrics named for the log. Raises as ``update_policy``.
    """
    config, workload = run.config, run.workload
    done: list[Update] = []
    for share in shares:
        selected, learner = share.selected, share.learner
        if not selected.rows:
            continue
        logger.info("%s: updating %s on %d sequences", title, learner, len(selected.rows))
        targets = [
            row
            for rollout in played.finished
            for row in workload.targets_of(rollout)
            if (row.learner or SOLE_LEARNER) == learner
        ]
        version = run.state.policy_version
        made = await run.trainer.run(update_policy, config, run.engine, share, version, targets, workload.target_weight)
        done.append(replace(made, metrics=config.metrics_of(learner, made.metrics)))
    return Update(
        trained=tuple(trajectory for made in done for trajectory in made.trained),
        advantages=[row for made in done for row in made.advantages],
        log_probs=[row for made in done for row in made.log_probs],
        left_out=sum((made.left_out for made in done), Counter()),
        metrics={name: value for made in done for name, value in made.metrics.items()},
    )


def update_policy(
    config: Config,
    engine: Engine,
    share: LearnerShare,
    policy_version: int,
    targets: Sequence[TargetRow] = (),
    target_weight: float = 0.0,
) -> Update:
    """Train one policy on its selected sequences.

    policy_version: of the weights before the update.
    targets, target_weight: additional target rows in the same steps, and their weight; unused without sequences.
    Raises LogProbMismatch when vLLM's log-probs differ from the trainer's.
    """
    selected = share.selected
    trajectories = [share.trajectories[row] for row in selected.rows]
    advantages = [share.advantages.per_token[row] for row in selected.rows]
    returns, values = selected.of(share.advantages.returns), selected.of(share.values)
    engine.select(trajectories[0].learner)
    temperature = config.rollout.temperature
    plain = build_batch(trajectories, temperature=temperature)
    log_probs = engine.log_probs(plain)
    compared = logprob_agreement(trajectories, log_probs, policy_version)
    if compared:
        check_agreement(config, compared, "log-probs of the sampled tokens")
    metrics = {f"logprobs/rollout_difference_{name}": value for name, value in compared.items()}
    corrected = apply_rollout_correction(trajectories, log_probs, policy_version, config.training.rollout_correction)
    metrics |= corrected.metrics

    def kept(rows: PerToken) -> list[torch.Tensor]:
        return [torch.as_tensor(rows[row], dtype=torch.float32) for row in corrected.rows]

    done = Update(corrected.trajectories, kept(advantages), kept(log_probs), corrected.left_out, metrics)
    if not done.trained:
        return done
    batch_of = partial(
        build_batch,
        done.trained,
        weigh_advantages(done.trained, done.advantages, config.advantage.weigh),
        temperature=temperature,
        old_log_probs=done.log_probs,
        reference_log_probs=kept(engine.reference_log_probs(plain)) if config.reference.kl == "loss" else None,
        importance_weights=corrected.importance_weights,
        values=None if values is None else kept(values),
        returns=None if returns is None else kept(returns),
    )
    if returns is not None:
        metrics |= engine.update_critic(batch_of())
    if targets:
        metrics["targets/rows"] = float(len(targets))
    metrics |= engine.update(batch_of(targets=targets), target_weight)
    return done
