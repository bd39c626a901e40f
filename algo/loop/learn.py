"""From a step's trajectories to the update; where several policies learn, each from its own trajectories alone."""

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from algo.advantages.baseline import RoleBaselines
from algo.advantages.estimators import TokenAdvantages, token_advantages
from algo.loop.running import Running
from algo.loop.update import Assessment, Update, assess, update
from algo.rollouts.played import PlayedRollouts
from algo.sequences.selection import Selection, select_sequences
from algo.sequences.trajectories import Trajectory
from algo.training.engine import as_member
from configs.schema import Config

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Share:
    """What one policy has of a step's trajectories. learner: its name; None where one policy learns.

    assessed, advantages, selected: of ``trajectories``, row by row.
    """

    learner: str | None
    trajectories: tuple[Trajectory, ...]
    assessed: Assessment
    advantages: TokenAdvantages
    selected: Selection

    def named(self, metrics: dict[str, float]) -> dict[str, float]:
        """Numbers of this policy alone, as the log is to have them: under its name, where there are several."""
        return metrics if self.learner is None else {f"{self.learner}/{name}": metrics[name] for name in metrics}


def trajectories_by_learner(
    config: Config, trajectories: Sequence[Trajectory]
) -> Iterator[tuple[str | None, tuple[Trajectory, ...]]]:
    """Each policy that learns, and what it sampled. Raises ValueError for what none of them sampled."""
    learners = [*config.team] or [None]
    for trajectory in trajectories:
        if trajectory.learner not in learners:
            raise ValueError(
                f"{trajectory.task_id}, {trajectory.actor}: {trajectory.learner!r} does not learn in this run"
            )
    for learner in learners:
        yield learner, tuple(trajectory for trajectory in trajectories if trajectory.learner == learner)


async def compare(run: Running, trajectories: Sequence[Trajectory], role_baselines: RoleBaselines) -> list[Share]:
    """An advantage for each sampled token, and which sequences are to reach the update.

    role_baselines: of the run, which take the step's rewards in. They are by role, and a role is of one policy only.
    """
    config, shares = run.config, []
    for learner, own in trajectories_by_learner(config, trajectories):
        assessed = await run.trainer.run(as_member, run.engine, learner, assess, config, run.engine, own)
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
        logger.info("%s: updating%s on %d sequences", title, f" {learner}" if learner else "", len(selected.rows))
        targets = [row for rollout in played.finished for row in workload.targets_of(rollout) if row.learner == learner]
        made = await run.trainer.run(
            as_member,
            run.engine,
            learner,
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
        done.append(Update(made.trained, made.advantages, made.log_probs, made.left_out, share.named(made.metrics)))
    return Update(
        trained=tuple(trajectory for made in done for trajectory in made.trained),
        advantages=[row for made in done for row in made.advantages],
        log_probs=[row for made in done for row in made.log_probs],
        left_out=sum((made.left_out for made in done), Counter()),
        metrics={name: value for made in done for name, value in made.metrics.items()},
    )
