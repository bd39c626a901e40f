"""Lets candidates play through the hub: one resources version for each, the same tasks for all, rewards read back."""

import logging
import math
import statistics
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from algo.machine.progress import game_progress
from algo.prompt_search.candidates import Candidate
from algo.prompt_search.journal import Journal
from algo.prompt_search.racing import Plays
from algo.rollouts.queue import RolloutQueue
from algo.rollouts.triplets import FinishedRollout
from configs.section import ConfigError
from store.schema import PolicyResources, Task

logger = logging.getLogger(__name__)

Say = Callable[[str], None]
"""Takes a line of what is told while a search goes on."""


@dataclass(frozen=True)
class Stage:
    """A part of a search, whose tasks are no other part's.

    slot: the prompt that its candidates differ in; None for several. held_out: its tasks are those that confirm.
    """

    name: str
    slot: str | None
    held_out: bool = False


@dataclass(frozen=True)
class Played:
    """What one candidate's doing of one task came to. reward: NaN where it failed. told, transcript: for reading."""

    task: int
    reward: float
    told: str = ""
    transcript: str = ""


class Workload(Protocol):
    """What is played: the game, or an agent's tasks."""

    low: float
    high: float

    def rollouts_a_task(self, stage: Stage) -> int:
        """Rollouts that one candidate needs for one task."""

    def tasks(self, stage: Stage, number: int, candidate: Candidate) -> Sequence[Task]:
        """Those rollouts. Everything in them but their names is the same for all candidates."""

    def reward(self, task: Task, finished: FinishedRollout) -> float:
        """From ``low`` to ``high``."""

    def resources(self, candidate: Candidate) -> PolicyResources:
        """What runners are told, the candidate's number as the version."""


class Arena:
    """Plays what a race asks for. Rollouts that an earlier process enqueued or finished are not enqueued again.

    check_alive: see ``RolloutQueue.collect``. resumed: there may be such rollouts.
    """

    def __init__(
        self,
        workload: Workload,
        queue: RolloutQueue,
        journal: Journal,
        check_alive: Callable[[], Awaitable[object]],
        say: Say,
        resumed: bool = False,
    ):
        self.workload = workload
        self.spent = 0
        self.failed = 0
        self._queue = queue
        self._journal = journal
        self._check_alive = check_alive
        self._say = say
        self._resumed = resumed
        self._played: dict[tuple[str, int], list[Played]] = {}

    def results(self, stage: Stage, candidate: Candidate) -> list[Played]:
        """What a candidate has played in a stage, in the order of its tasks."""
        return self._played.get((stage.name, candidate.number), [])

    async def play(self, stage: Stage, plays: Plays, candidates: Sequence[Candidate]) -> np.ndarray:
        """Rewards, shape (tasks, candidates of ``plays``), NaN where a rollout failed for good.

        candidates: those that ``plays`` has indices of. Raises what ``RolloutQueue.collect`` does, and ConfigError for
        a reward out of bounds.
        """
        playing = [candidates[index] for index in plays.candidates]
        wanted = {
            (candidate.number, number): list(self.workload.tasks(stage, number, candidate))
            for candidate in playing
            for number in plays.tasks
        }
        await self._let_play(stage, playing, wanted)
        rewards = np.full((len(plays.tasks), len(playing)), math.nan)
        for column, candidate in enumerate(playing):
            for row, number in enumerate(plays.tasks):
                played = self._read(number, wanted[candidate.number, number])
                rewards[row, column] = played.reward
                self._played.setdefault((stage.name, candidate.number), []).append(played)
        self.spent += sum(map(len, wanted.values()))
        self.failed += sum(self._journal.get(task.task_id)["reward"] is None for one in wanted.values() for task in one)
        return rewards

    async def _let_play(
        self, stage: Stage, playing: Sequence[Candidate], wanted: dict[tuple[int, int], list[Task]]
    ) -> None:
        missing: dict[int, list[Task]] = {}
        for (number, _), tasks in wanted.items():
            missing.setdefault(number, []).extend(task for task in tasks if self._journal.get(task.task_id) is None)
        tasks = [task for of_candidate in missing.values() for task in of_candidate]
        if not tasks:
            return
        for candidate in playing:
            if of_candidate := missing[candidate.number]:
                resources = self.workload.resources(candidate)
                self._say(f"prompt {candidate.name} published as {resources.resources_id}")
                known = await self._queue.enqueue(of_candidate, resources, self._resumed, mode="val")
                in_hub = f", {known} of them in the hub before" if known else ""
                self._say(f"{len(of_candidate)} rollouts queued with prompt {candidate.name}{in_hub}")
        self._resumed = False  # only what was under way when a process ended can be in the hub unread
        by_id = {task.task_id: task for task in tasks}
        with game_progress(stage.name, len(tasks)) as on_progress:
            played = await self._queue.collect(tasks, self._check_alive, on_progress)
        finished = {one.outcome.task: one for one in played.finished}
        for reason, count in played.failures.items():
            logger.warning("%d rollouts failed for good: %s", count, reason)
        for task_id, task in by_id.items():
            one = finished.get(task_id)
            answer = {"reward": None, "told": "failed", "transcript": ""}
            if one is not None:
                reward = self.workload.reward(task, one)
                if not self.workload.low <= reward <= self.workload.high:
                    raise ConfigError(
                        f"task {task_id} earned {reward:g}, which is not from {self.workload.low:g} to "
                        f"{self.workload.high:g}: name the bounds of your rewards with --reward-range LOW HIGH"
                    )
                answer = {"reward": reward, "told": one.outcome.told, "transcript": one.outcome.transcript}
            self._journal.put(task_id, answer)
        for candidate in playing:
            if of_candidate := missing[candidate.number]:
                read = [finished[task.task_id] for task in of_candidate if task.task_id in finished]
                rewards = [self._journal.get(one.outcome.task)["reward"] for one in read]
                shown = f"{statistics.fmean(rewards):.3f}" if rewards else "none"
                spans = sum(len(one.turns) + 1 for one in read)
                self._say(f"{spans} spans of prompt {candidate.name} read, mean reward {shown}")

    def _read(self, number: int, tasks: Sequence[Task]) -> Played:
        answers = [self._journal.get(task.task_id) for task in tasks]
        rewards = [answer["reward"] for answer in answers]
        return Played(
            number,
            math.nan if None in rewards else statistics.fmean(rewards),
            "; ".join(answer["told"] for answer in answers),
            "\n\n".join(answer["transcript"] for answer in answers).strip(),
        )
