"""Plays the tasks of candidates through the hub: one resources version for each candidate, the same tasks for all.

Every reward and every reply of the proposer is in the journal before it is used. A search is a function of its plan and
the journal, so a resumed search runs from the start and reads what the journal has.
"""

import json
import logging
import math
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from algo.machine.progress import game_progress
from algo.prompt_search.prompts import Candidate
from algo.prompt_search.tasks import Stage, Workload, resources_of
from algo.rollouts.played import AllRolloutsFailed, UnusableRollouts
from algo.rollouts.queue import RolloutQueue
from algo.run.summary import failure_summary
from store.schema import Task

logger = logging.getLogger("algo.find_best_prompt")


class Journal(dict[str, Any]):
    """Answers by key, one JSON object a line, each on disk before it is used. An incomplete last line is dropped."""

    def __init__(self, path: Path):
        self._file = path.open("ab+")
        self._file.seek(0)
        text = self._file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._file.truncate(len(whole))
        super().__init__((entry["key"], entry["answer"]) for entry in map(json.loads, whole.splitlines()))

    def add(self, key: str, answer: Any) -> None:
        self._file.write(json.dumps({"key": key, "answer": answer}, ensure_ascii=False).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        self[key] = answer

    def close(self) -> None:
        self._file.close()


@dataclass(frozen=True)
class TaskResult:
    """Result of one candidate's task. reward: NaN where it failed. summary, transcript: for people."""

    reward: float
    summary: str = ""
    transcript: str = ""


class Arena:
    """Plays the tasks of a search. Rollouts that an earlier process enqueued or finished are not enqueued again.

    check_alive: see ``RolloutQueue.watch``. resumed: such rollouts may exist. spent, failed: rollouts so far.
    """

    def __init__(
        self,
        workload: Workload,
        queue: RolloutQueue,
        journal: Journal,
        check_alive: Callable[[], Awaitable[object]],
        resumed: bool,
    ):
        self.workload = workload
        self.spent = 0
        self.failed = 0
        self._queue = queue
        self._journal = journal
        self._check_alive = check_alive
        self._resumed = resumed

    async def play(
        self, stage: Stage, candidates: Sequence[Candidate], numbers: Sequence[int]
    ) -> list[list[TaskResult]]:
        """Play each task of a stage with each candidate; returns the results by candidate and task.

        Raises what ``RolloutQueue.watch`` does, AllRolloutsFailed, and UnusableRollouts for a reward out of bounds.
        """
        wanted = {one: [self.workload.tasks(stage, number, one) for number in numbers] for one in candidates}
        queued: list[Task] = []
        for candidate, of_one in wanted.items():
            missing = [task for tasks in of_one for task in tasks if task.task_id not in self._journal]
            if missing:
                resources = resources_of(self.workload, candidate)
                logger.info("prompt %s published as %s", candidate.name, resources.resources_id)
                known = await self._queue.enqueue(missing, resources, self._resumed, mode="val")
                in_hub = f", {known} of them in the hub before" if known else ""
                logger.info("%d rollouts queued with prompt %s%s", len(missing), candidate.name, in_hub)
                queued += missing
        if queued:
            self._resumed = False  # only rollouts in flight at a process's end can be unread
            asked = [task for of_one in wanted.values() for tasks in of_one for task in tasks]
            await self._collect(stage, queued, asked)
        results = [list(map(self._result, of_one)) for of_one in wanted.values()]
        for candidate, found in zip(candidates, results, strict=True):
            if earned := [one.reward for one in found if not math.isnan(one.reward)]:
                logger.info("%d tasks of prompt %s read, mean reward %.3f", len(found), candidate.name, fmean(earned))
        return results

    def _result(self, tasks: Sequence[Task]) -> TaskResult:
        answers = [self._journal[task.task_id] for task in tasks]
        rewards = [math.nan if answer["reward"] is None else answer["reward"] for answer in answers]
        self.spent += len(tasks)
        self.failed += sum(map(math.isnan, rewards))
        summary = "; ".join(answer["summary"] for answer in answers).strip()
        return TaskResult(fmean(rewards), summary, "\n\n".join(answer["transcript"] for answer in answers).strip())

    async def _collect(self, stage: Stage, tasks: Sequence[Task], asked: Sequence[Task]) -> None:
        """Wait for the rollouts of ``tasks``, and write their rewards into the journal.

        Raises AllRolloutsFailed if none of ``asked`` has succeeded: those, and others that a resumed search has from
        its journal.
        """
        task_ids = [task.task_id for task in tasks]
        await self._queue.watch(
            task_ids,
            lambda: len(self._queue.ended(task_ids)) == len(tasks),
            self._check_alive,
            game_progress(stage.name, len(tasks)),
        )
        played = self._queue.take_ended(task_ids)
        failures = played.failures + played.own_failures
        for reason, count in failures.items():
            logger.warning("%d rollouts failed: %s", count, reason)
        journaled = (self._journal[task.task_id] for task in asked if task.task_id in self._journal)
        if failures.total() == len(tasks) and all(answer["failed"] for answer in journaled):
            raise AllRolloutsFailed(
                f"no rollout has a result: {failure_summary(failures, len(tasks))}. See the runners' logs. "
                f"Fix the agent; a resumed search (--resume auto) plays these rollouts again"
            )
        finished = {one.outcome.task: one for one in played.finished}
        low, high = self.workload.bounds
        for task in tasks:
            answer = {"reward": None, "failed": True, "summary": "failed", "transcript": ""}
            if one := finished.get(task.task_id):
                reward = self.workload.reward(task, one)
                if not low <= reward <= high:
                    # LOW is the reward of failures in the journal (``run._check_plan``).
                    remedy = "set the bounds with" if reward > high else "start another search (--resume never) with"
                    raise UnusableRollouts(
                        f"task {task.task_id}: reward {reward:g} is not from {low:g} to {high:g}: {remedy} "
                        f"--reward-range LOW HIGH, or fix the agent; a resumed search (--resume auto) plays it again"
                    )
                failed, told = bool(one.outcome.own_failure), one.outcome
                answer = {"reward": reward, "failed": failed, "summary": told.summary, "transcript": told.transcript}
            self._journal.add(task.task_id, answer)
