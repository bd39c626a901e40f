"""The search's workload for any agent: tasks from a file, rewards from the agent."""

import random
from collections.abc import Sequence

from algo.prompt_search.arena import Stage
from algo.prompt_search.candidates import Candidate
from algo.rollouts.triplets import FinishedRollout
from store.agents import AgentTask
from store.schema import PolicyResources, Task, TokenLimits


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
