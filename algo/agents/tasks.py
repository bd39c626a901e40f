"""The tasks of a step and of an evaluation; all of it follows from the configuration and the data."""

import hashlib
import random
from collections.abc import Sequence
from typing import Any

from configs.agents import AgentConfig
from store.agents import AgentTask
from store.schema import TokenLimits


def step_tasks(config: AgentConfig, inputs: Sequence[Any], step: int) -> list[AgentTask]:
    """The tasks of one step, from 1: ``groups_per_step`` of them, each ``rollouts_per_group`` times.

    Every input comes once, in an order drawn from the run's seed, before any comes again.
    """
    rollout, tasks = config.rollout, []
    for group in range(rollout.groups_per_step):
        drawn = (step - 1) * rollout.groups_per_step + group
        group_id = f"{config.run.name}-step{step:04d}-task{group:02d}"
        tasks += [
            _task(config, f"{group_id}-rollout{number:02d}", group_id, inputs[_order(config, len(inputs), drawn)])
            for number in range(rollout.rollouts_per_group)
        ]
    return tasks


def held_out_tasks(config: AgentConfig, inputs: Sequence[Any], name: str) -> list[AgentTask]:
    """``evaluation.attempts`` tasks for each of the first ``evaluation.tasks`` inputs. Nothing of them is trained on.

    name: names the tasks, and seeds their sampling.
    """
    tasks = []
    for number, given in enumerate(inputs[: config.evaluation.tasks]):
        group_id = f"{name}-task{number:04d}"
        tasks += [
            _task(config, f"{group_id}-attempt{attempt:02d}", group_id, given, held_out=True)
            for attempt in range(config.evaluation.attempts)
        ]
    return tasks


def _task(config: AgentConfig, task_id: str, group_id: str, given: Any, held_out: bool = False) -> AgentTask:
    settings, rollout = config.agents, config.rollout
    trained = None if settings.trained_actors is None else frozenset(settings.trained_actors)
    return AgentTask(
        task_id=task_id,
        group_id=group_id,
        input=given,
        sampling_seed=_seed(config.evaluation.seed if held_out else config.run.seed, task_id, config.run.name),
        limits=TokenLimits(context_tokens=rollout.context_tokens, reply_tokens=rollout.reply_tokens),
        trainable=frozenset() if held_out else trained,
        max_calls=settings.max_calls,
        max_seconds=settings.max_seconds,
        failure_rewards=config.reward.of_a_failure(),
    )


def _seed(seed: int, task_id: str, run_name: str) -> int:
    """Of the sampling; a run that is repeated under another name samples the same."""
    digest = hashlib.blake2b(f"{seed}/{task_id.removeprefix(run_name)}".encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big") >> 1


def digest_of(what: Any) -> str:
    """Eight digits that stand for a value."""
    return hashlib.blake2b(repr(what).encode(), digest_size=4).hexdigest()


def _order(config: AgentConfig, count: int, drawn: int) -> int:
    """Which of ``count`` inputs is the ``drawn``-th of the run, from 0."""
    epoch, place = divmod(drawn, count)
    return random.Random(f"{config.run.seed}/{epoch}").sample(range(count), count)[place]
