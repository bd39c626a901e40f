"""Runs rollouts through the hub: enqueues tasks, waits for the runners, reads the results."""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import aiohttp

from algo.rollouts.hub_rollouts import HubRollouts, OpenRollout, ResumePoint
from algo.rollouts.played import NoFinishedRollouts, PlayedRollouts, Progress
from configs.sections.rollout import RolloutSettings
from store.client import StoreClient, StoreUnreachable
from store.finished import FinishedRollouts
from store.protocol import CLOSED, Rollout, RolloutMode
from store.schema import PolicyResources, Task
from store.token_spans import TaskKind

logger = logging.getLogger(__name__)

_POLL_SECONDS = 0.5
_LOOKS_FOR_SPANS = 10
_FULL_LOOK_SECONDS = 5.0
_NO_RUNNER_SECONDS = 30.0
_CANCEL_SECONDS = 10.0


class RolloutQueue:
    """Enqueues rollouts and collects their results. Survives a hub that restarts with an empty memory.

    Rollouts of several steps may be in flight at once: ``enqueue`` adds some, ``watch`` waits for some
    or for whichever end first, and ``take`` returns them.
    """

    def __init__(
        self,
        client: StoreClient,
        kind: TaskKind,
        config: RolloutSettings,
        resumption: ResumePoint | None = None,
    ):
        """kind: of all tasks. resumption: see ``HubRollouts``."""
        self._hub = HubRollouts(client, kind, config, resumption)
        self._open: dict[str, OpenRollout] = {}
        self._ended: dict[str, PlayedRollouts] = {}  # by task, in the order in which they ended

    async def play(
        self,
        tasks: Sequence[Task],
        resources: PolicyResources,
        check_alive: Callable[[], Awaitable[object]],
        on_progress: Callable[[Progress], None],
    ) -> PlayedRollouts:
        """Enqueue rollouts and wait until all have ended; other rollouts stay in flight.

        check_alive: called every few seconds; its errors end the wait. Raises NoFinishedRollouts if none is usable.
        """
        await self.enqueue(tasks, resources)
        task_ids = {task.task_id for task in tasks}
        await self.watch(task_ids, lambda: not self._still_open(task_ids), check_alive, on_progress)
        return self.take(tasks)

    async def enqueue(
        self,
        tasks: Sequence[Task],
        resources: PolicyResources,
        resumed: bool = False,
        mode: RolloutMode = "train",
        oldest_version: int = 0,
    ) -> int:
        """Publish the policy and enqueue the tasks; returns how many already had a rollout in the hub, in any state.

        resumed: an earlier process of this run may have enqueued some of them; see ``HubRollouts.adopt``.
        """
        missing, known = list(tasks), 0
        if resumed:
            adopted, missing, known = await self._hub.adopt(tasks, resources, mode, oldest_version)
            self._open |= adopted
        await self._hub.enqueue([OpenRollout(task, resources, mode) for task in missing], self._open)
        return known

    async def update_endpoints(
        self, endpoints: tuple[str, ...], policies: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    ) -> None:
        """Publish new endpoints for the resources of all open rollouts. policies: endpoints by policy name."""
        self._open = {
            rollout_id: replace(rollout, resources=rollout.resources.with_endpoints(endpoints, policies))
            for rollout_id, rollout in self._open.items()
        }
        await self._hub.publish(rollout.resources for rollout in self._open.values())

    async def watch(
        self,
        watched: Collection[str],
        enough: Callable[[], bool],
        check_alive: Callable[[], Awaitable[object]],
        on_progress: Callable[[Progress], None],
    ) -> None:
        """Read rollouts as they end, until ``enough`` is true; it is called whenever some have ended.

        watched: ids of their tasks. check_alive: called every few seconds; its errors end the wait.
        """
        looks: Counter[str] = Counter()
        ended_since = FinishedRollouts(self._hub.client)
        statuses: Counter[str] = Counter()
        next_full_look, without_runner_since = 0.0, time.monotonic()
        while not enough():
            if time.monotonic() >= next_full_look:
                await check_alive()
                next_full_look = time.monotonic() + _FULL_LOOK_SECONDS
                rollouts = await self._query_all(self._still_open(watched))
                closed = [rollout for rollout in rollouts if rollout.status in CLOSED]
                statuses = Counter(rollout.status for rollout in rollouts if rollout.status not in CLOSED)
            else:  # in between, only newly ended ones
                closed = await ended_since.poll(self._still_open(watched))
            for rollout in sorted(closed, key=lambda rollout: rollout.end_time or 0.0):
                # A hub in memory may just have restarted; the next full query detects the lost rollout.
                looks[rollout.rollout_id] += 1
                opened = self._open[rollout.rollout_id]
                may_lack_spans = looks[rollout.rollout_id] > _LOOKS_FOR_SPANS
                if played := await self._hub.read(rollout, opened, may_lack_spans):
                    del self._open[rollout.rollout_id]
                    self._ended[opened.task.task_id] = played
            ended = [self._ended[task_id] for task_id in self.ended(watched)]
            finished, still_open = sum(len(one.finished) for one in ended), len(self._still_open(watched))
            playing = min(statuses["preparing"] + statuses["running"], still_open)
            on_progress(Progress(finished, len(ended) - finished, playing, still_open - playing))
            if playing or not still_open:
                without_runner_since = time.monotonic()
            elif time.monotonic() - without_runner_since > _NO_RUNNER_SECONDS:
                command = f"python -m {self._hub.kind.runner} --n 8 --store {self._hub.client.server_address_root}"
                logger.warning("%d rollouts wait without a runner; start one: %s", still_open, command)
                without_runner_since = time.monotonic()
            if still_open and not enough():
                await asyncio.sleep(_POLL_SECONDS)

    def ended(self, watched: Collection[str]) -> list[str]:
        """The watched tasks with rollouts that have ended and were not taken, in the order of their ends."""
        return [task_id for task_id in self._ended if task_id in watched]

    def take(self, tasks: Sequence[Task]) -> PlayedRollouts:
        """Results of these ended tasks; they can be taken once.

        Raises NoFinishedRollouts if none is usable.
        """
        played = self.take_ended([task.task_id for task in tasks])
        if not played.finished:
            reasons = "; ".join(f"{count}x {reason}" for reason, count in played.failures.most_common(3))
            raise NoFinishedRollouts(f"none of {len(tasks)} rollouts is usable: {reasons}. See the runners' logs")
        return played

    def take_ended(self, watched: Collection[str]) -> PlayedRollouts:
        """Results of the ended ones of these tasks, in the order of ``watched``; they can be taken once."""
        return PlayedRollouts.merge([self._ended.pop(task_id) for task_id in watched if task_id in self._ended])

    async def cancel_open(self) -> None:
        """Cancel the open rollouts, so that no runner plays them in vain."""
        try:
            async with asyncio.timeout(_CANCEL_SECONDS):  # an unreachable hub must not delay the exit
                await self._hub.cancel(self._open)
                self._open.clear()
        except (TimeoutError, aiohttp.ClientError, StoreUnreachable) as error:
            kind = type(error).__name__
            logger.warning("cancelling %d rollouts failed (%s); runners may still play them", len(self._open), kind)

    async def cancel_later(self, newest: Mapping[str, int]) -> None:
        """See ``HubRollouts.cancel_later``."""
        await self._hub.cancel_later(newest)

    def _still_open(self, watched: Collection[str]) -> list[str]:
        return [rollout_id for rollout_id, rollout in self._open.items() if rollout.task.task_id in watched]

    async def _query_all(self, rollout_ids: Sequence[str]) -> Sequence[Rollout]:
        """The hub's state of these rollouts. Enqueues lost ones again: a hub in memory restarts empty."""
        rollouts = await self._hub.client.query_rollouts(rollout_id_in=rollout_ids)
        known = {rollout.rollout_id for rollout in rollouts}
        forgotten = [self._open.pop(rollout_id) for rollout_id in rollout_ids if rollout_id not in known]
        if forgotten:
            logger.warning("the hub has lost %d rollouts, probably by a restart; enqueueing them again", len(forgotten))
            await self._hub.enqueue(forgotten, self._open)
        return rollouts
