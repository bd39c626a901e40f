"""From a step's trajectories to the update: each policy that learns, from its own trajectories alone."""

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from algo.advantages.baseline import RoleBaselines
from algo.advantages.estimators import TokenAdvantages, token_advantages
from algo.loop.running import Running
from algo.loop.update import Assessment, Update, assess, update
from algo.rollouts.played import PlayedRollouts
from algo.sequences.selection import Selection, select_sequences
from algo.sequences.trajectories import Trajectory
from configs.schema import Config
from configs.sections.policies import SOLE_LEARNER

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Share:
    """One policy's part of a step's trajectories. assessed, advantages, selected: of ``trajectories``, row by row."""

    learner: str
    trajectories: tuple[Trajectory, ...]
    assessed: Assessment
    advantages: TokenAdvantages
    selected: Selection


def trajectories_by_learner(config: Config, trajectories: Sequence[Trajectory]) -> dict[str, tuple[Trajectory, ...]]:
    """The trajectories of each policy that learns. Raises ValueError for one that none of them sampled."""
    found: dict[str, list[Trajectory]] = {learner: [] for learner in config.learners}
    for trajectory in trajectories:
        learner = trajectory.learner or SOLE_LEARNER
        if learner not in found:
            raise ValueError(f"{trajectory.task_id}, {trajectory.actor}: {learner!r} does not learn in this run")
        found[learner].append(trajectory)
    return {learner: tuple(own) for learner, own in found.items()}


async def compare(run: Running, trajectories: Sequence[Trajectory], role_baselines: RoleBaselines) -> list[Share]:
    """An advantage for each sampled token, and which sequences are to reach the update.

    role_baselines: of the run, which take the step's rewards in. They are by role, and a role is of one policy only.
    """
    config, shares = run.config, []
    for learner, own in trajectories_by_learner(config, trajectories).items():
        assessed = await run.trainer.run(assess, config, run.engine, own)
        advantages = token_advantages(
            own,
            config.advantage,
            role_baselines=role_baselines,
            kl_penalties=assessed.kl_penalties,
            values=assessed.values,
        )
        selected = select_sequences(
            own,
            advantages.informative,
            config.selection,
            config.run.seed,
            oldest_version_allowed=run.state.policy_version - config.rollout.max_policy_lag,
        )
        shares.append(Share(learner, own, assessed, advantages, selected))
    return shares


async def learn(
    run: Running, shares: Sequence[Share], played: PlayedRollouts, title: str, trains_policy: bool
) -> Update:
    """Update every policy that has sequences to learn from, one after another.

    shares: of ``compare``. title: names the step in the log. trains_policy: False trains critics alone.
    Returns what was done, of several policies together, its metrics named as the log is to have them.
    Raises what ``algo.loop.update.update`` raises.
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
        made = await run.trainer.run(
            update,
            config,
            run.engine,
            selected.of(share.trajectories),
            selected.of(share.advantages.per_token),
            selected.of(share.advantages.returns),
            selected.of(share.assessed.values),
            run.state.policy_version,
            trains_policy,
            targets,
            workload.target_weight,
        )
        done.append(replace(made, metrics=config.metrics_of(learner, made.metrics)))
    return Update(
        trained=tuple(trajectory for made in done for trajectory in made.trained),
        advantages=[row for made in done for row in made.advantages],
        log_probs=[row for made in done for row in made.log_probs],
        left_out=sum((made.left_out for made in done), Counter()),
        metrics={name: value for made in done for name, value in made.metrics.items()},
    )
