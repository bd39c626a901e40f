"""A run's groups of rollouts in flight: started by the schedule, and taken for steps as they finish."""

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass

from algo.rollouts.played import PlayedRollouts, Progress
from algo.rollouts.queue import RolloutQueue
from algo.rollouts.schedule import Schedule
from store.schema import PolicyResources, Task


@dataclass(frozen=True)
class PlayedStep:
    """The rollouts of a step. groups: their ids. in_flight: number of groups that stay so."""

    groups: tuple[str, ...]
    rollouts: PlayedRollouts
    in_flight: int


class InFlight:
    """Starts groups, and returns those of each step.

    Group k is the same in every process: group k % n of ``tasks_of_step(1 + k // n)``, with n groups per step.
    """

    def __init__(
        self,
        queue: RolloutQueue,
        schedule: Schedule,
        per_step: int,
        tasks_of_step: Callable[[int], Sequence[Task]],
        adopting: bool,
    ):
        """adopting: an earlier process of the run may have left rollouts in the hub."""
        self._queue = queue
        self._schedule = schedule
        self._per_step = per_step
        self._tasks_of_step = tasks_of_step
        self._adopting = adopting
        self._tasks: dict[int, list[Task]] = {}

    async def play_step(
        self,
        version: int,
        resources: PolicyResources,
        refresh_endpoints: Callable[[], Awaitable[None]],
        on_progress: Callable[[Progress], None],
    ) -> PlayedStep:
        """Wait until enough groups have finished for a step with the policy at ``version``, and take them.

        Raises NoFinishedRollouts, and the errors of ``refresh_endpoints``.
        """
        known = [group.number for group in self._schedule.open if group.number not in self._tasks]
        if known:  # started by an earlier process
            await self._enqueue(known, resources, 0)
        if count := self._schedule.room:
            numbers = [group.number for group in self._schedule.begin(count, version)]
            # The schedule does not know the age of groups that an earlier process started later.
            found = await self._enqueue(numbers, resources, version)
            self._adopting = self._adopting and found > 0  # groups start in order, without gaps
        watched = {task.task_id for tasks in self._tasks.values() for task in tasks}

        def chosen() -> list[int] | None:
            return self._schedule.choose(self._finished(watched), version)

        await self._queue.watch(watched, lambda: chosen() is not None, refresh_endpoints, on_progress)
        numbers = chosen()
        assert numbers is not None
        self._schedule.take(numbers)
        groups = [self._tasks.pop(number) for number in numbers]
        played = self._queue.take([task for group in groups for task in group])
        return PlayedStep(tuple(group[0].group_id for group in groups), played, len(self._schedule.open))

    async def play_further(
        self,
        tasks: Sequence[Task],
        resources: PolicyResources,
        refresh_endpoints: Callable[[], Awaitable[None]],
        on_progress: Callable[[Progress], None],
    ) -> PlayedRollouts:
        """Play further rollouts of the step that was just played; the result may have no finished one.

        Raises the errors of ``refresh_endpoints``.
        """
        # An earlier process can only have enqueued these if it had enqueued the step's own rollouts.
        await self._queue.enqueue(tasks, resources, resumed=self._adopting)
        task_ids = [task.task_id for task in tasks]
        await self._queue.watch(
            task_ids, lambda: len(self._queue.ended(task_ids)) == len(tasks), refresh_endpoints, on_progress
        )
        return self._queue.take_ended(task_ids)

    async def _enqueue(self, numbers: Sequence[int], resources: PolicyResources, oldest_version: int) -> int:
        for step in dict.fromkeys(number // self._per_step for number in numbers):
            groups: dict[str, list[Task]] = {}
            for task in self._tasks_of_step(step + 1):
                groups.setdefault(task.group_id, []).append(task)
            of_step = dict(enumerate(groups.values(), step * self._per_step))
            self._tasks |= {number: of_step[number] for number in numbers if number in of_step}
        tasks = [task for number in numbers for task in self._tasks[number]]
        return await self._queue.enqueue(tasks, resources, resumed=self._adopting, oldest_version=oldest_version)

    def _finished(self, watched: Collection[str]) -> list[int]:
        """Groups with only ended rollouts, in the order of the last end of each."""
        ended = {task_id: place for place, task_id in enumerate(self._queue.ended(watched))}
        last = {
            number: max(ended.get(task.task_id, len(ended)) for task in tasks) for number, tasks in self._tasks.items()
        }
        return sorted((number for number, place in last.items() if place < len(ended)), key=last.__getitem__)
