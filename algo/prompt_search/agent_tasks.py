"""The search's workload for any agent: tasks from a file, rewards from the agent."""

import json
import random
from collections.abc import Sequence
from pathlib import Path

from algo.prompt_search.arena import Stage
from algo.prompt_search.candidates import Candidate
from algo.rollouts.triplets import FinishedRollout
from configs.section import ConfigError
from store.agents import AgentTask
from store.schema import PolicyResources, Task, TokenLimits

SLOT = "template"
"""Agents find the prompt as the resource ``prompt_template``, as in agentlightning's own examples."""

_FEWEST = 4


def read_tasks(path: Path) -> list[object]:
    """The agent's inputs, one JSON value a line. Raises ConfigError."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--tasks: cannot read {path}: {error}") from error
    return [_read_task(line, f"line {number} of {path}") for number, line in enumerate(lines, start=1) if line.strip()]


def _read_task(line: str, where: str) -> object:
    try:
        return json.loads(line)
    except json.JSONDecodeError as error:
        raise ConfigError(
            f"--tasks: {where} is no JSON ({error.msg}); a text is written with quotes, one task a line"
        ) from error


def split(inputs: Sequence[object], held_out: float, seed: int) -> tuple[list[object], list[object]]:
    """(tasks to search with, tasks to confirm a winner with); drawn by the seed. Raises ConfigError for too few."""
    shuffled = list(inputs)
    random.Random(seed).shuffle(shuffled)
    count = round(len(shuffled) * held_out)
    if min(count, len(shuffled) - count) < _FEWEST:
        raise ConfigError(
            f"{len(shuffled)} tasks are too few: {_FEWEST} to search with and {_FEWEST} others to confirm a winner "
            f"with are the least (--held-out is {held_out:g})"
        )
    return shuffled[count:], shuffled[:count]


class AgentTasks:
    """Every task of a stage is drawn anew from its tasks, with a sampling seed of its own.

    Drawn with replacement, so that what is said holds for the mean over those tasks, however few there are.
    limits: of one call. base: resources of which the prompt and the version are replaced.
    """

    def __init__(
        self,
        search: Sequence[object],
        held_out: Sequence[object],
        base: PolicyResources,
        limits: TokenLimits,
        seed: int,
        low: float,
        high: float,
    ):
        self.low, self.high = low, high
        self._search, self._held_out = search, held_out
        self._base = base
        self._limits = limits
        self._seed = seed

    def rollouts_a_task(self, stage: Stage) -> int:
        """One."""
        return 1

    def tasks(self, stage: Stage, number: int, candidate: Candidate) -> Sequence[Task]:
        """The stage's task of that number."""
        chance = random.Random(f"{self._seed}/{stage.name}/{number}")
        drawn = chance.choice(self._held_out if stage.held_out else self._search)
        return [
            AgentTask(
                task_id=f"{stage.name}-task{number:05d}-prompt{candidate.number:03d}",
                group_id=f"{stage.name}-task{number:05d}",
                input=drawn,
                sampling_seed=chance.getrandbits(31),
                limits=self._limits,
                failure_rewards={"reward": self.low},
            )
        ]

    def reward(self, task: Task, finished: FinishedRollout) -> float:
        """The primary dimension."""
        return next(iter(finished.outcome.rewards().values()))

    def resources(self, candidate: Candidate) -> PolicyResources:
        """With the candidate's text as the resource ``prompt_template``."""
        return self._base.model_copy(
            update={"version": candidate.number, "prompt_templates": dict(candidate.templates)}
        )
