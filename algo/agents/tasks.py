"""The tasks of a step and of an evaluation, a function of configuration and data."""

import hashlib
import random
from collections.abc import Sequence
from typing import Any

from configs.agents import AgentConfig
from store.agents import AgentTask
from store.schema import TokenLimits


def step_tasks(config: AgentConfig, inputs: Sequence[Any], step: int) -> list[AgentTask]:
    """The tasks of one step, from 1: ``groups_per_step`` of them, each ``rollouts_per_group`` times.

    Inputs are shuffled by the run's seed in each epoch.
    """
    trained, tasks = config.agents.trained_actors, []
    for group in range(config.rollout.groups_per_step):
        epoch, place = divmod((step - 1) * config.rollout.groups_per_step + group, len(inputs))
        order = random.Random(f"{config.run.seed}/{epoch}").sample(range(len(inputs)), len(inputs))
        group_id = f"{config.run.name}-step{step:04d}-task{group:02d}"
        tasks += [
            _task(
                config,
                f"{group_id}-rollout{number:02d}",
                group_id=group_id,
                input=inputs[order[place]],
                trainable=None if trained is None else frozenset(trained),
                seed=config.run.seed,
            )
            for number in range(config.rollout.rollouts_per_group)
        ]
    return tasks


def held_out_tasks(config: AgentConfig, inputs: Sequence[Any], name: str) -> list[AgentTask]:
    """``evaluation.attempts`` tasks for each of the first ``evaluation.tasks`` inputs; none is trainable.

    name: prefix of the ids, and seed of the sampling.
    """
    return [
        _task(
            config,
            f"{name}-task{number:04d}-attempt{attempt:02d}",
            group_id=f"{name}-task{number:04d}",
            input=given,
            trainable=frozenset(),
            seed=config.evaluation.seed,
        )
        for number, given in enumerate(inputs[: config.evaluation.tasks])
        for attempt in range(config.evaluation.attempts)
    ]


def _task(config: AgentConfig, task_id: str, *, seed: int, **fields: Any) -> AgentTask:
    # Without the run's name, so that a repetition under another name samples equally.
    digest = hashlib.blake2b(f"{seed}/{task_id.removeprefix(config.run.name)}".encode(), digest_size=4).digest()
    return AgentTask(
        task_id=task_id,
        sampling_seed=int.from_bytes(digest, "big") >> 1,
        limits=TokenLimits(context_tokens=config.rollout.context_tokens, reply_tokens=config.rollout.reply_tokens),
        max_calls=config.agents.max_calls,
        max_seconds=config.agents.max_seconds,
        failure_rewards=config.reward.failure_rewards(),
        **fields,
    )
