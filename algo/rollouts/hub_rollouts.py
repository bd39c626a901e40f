"""Enqueues, adopts, cancels and reads a run's rollouts in the hub."""

import json
import logging
import math
from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp

from algo.rollouts.played import PlayedRollouts, read_rollout, reason_of
from configs.section import ConfigError
from configs.sections.rollout import RolloutSettings
from store.client import TOO_LARGE, StoreClient, batches
from store.protocol import CLOSED, EnqueueRolloutRequest, Rollout, RolloutConfig, RolloutMode
from store.schema import IDEMPOTENCY_KEY, VERSION_SEPARATOR, PolicyResources, Task
from store.token_spans import MalformedSpan, TaskKind

logger = logging.getLogger(__name__)

_BEST_TO_ADOPT = ("succeeded", "running", "preparing", "requeuing", "queuing")
_PROCESS = "process"
"""Key of a rollout's metadata: number of the process that enqueued it (``ResumePoint.number``; 0 started the run)."""
_ROLLOUTS_PER_PAGE = 500
_VERSION_DIGITS = 20
_CHARACTERS_PER_REQUEST = 400_000
"""Of JSON, in a request with several tasks: our hub limits bytes, and JSON values where there are 500,000 bytes."""


@dataclass(frozen=True)
class ResumePoint:
    """The point from which a run is resumed.

    policy_version: of the weights in the checkpoint. Later updates are lost and repeated under the same versions, with
        other weights: their rollouts must be repeated, too.
    number: of resumes of the run, including this one.
    before: policy versions of the earlier resumes.
    """

    policy_version: int
    number: int
    before: tuple[int, ...] = ()

    def newest_version_of(self, number: int) -> int:
        """The newest policy version of a process that later resumes kept. number: of the process; 0 started the run."""
        return min((*self.before, self.policy_version)[number:], default=self.policy_version)


@dataclass(frozen=True)
class OpenRollout:
    """An enqueued rollout that has not been read yet. mode: agentlightning's ``train`` or ``val``."""

    task: Task
    resources: PolicyResources
    mode: RolloutMode


async def iter_rollouts(client: StoreClient, **query: Any) -> AsyncIterator[list[Rollout]]:
    """All rollouts of the hub by page, newest first. One may occur twice if others are enqueued meanwhile."""
    offset, more = 0, True
    while more:
        page = await client.query_rollouts(
            sort_by="start_time", sort_order="desc", limit=_ROLLOUTS_PER_PAGE, offset=offset, **query
        )
        yield list(page)
        offset += len(page)
        more = len(page) == _ROLLOUTS_PER_PAGE


class HubRollouts:
    """A run's rollouts in the hub. settings: timeouts and number of attempts of every rollout.

    resumption: of a resumed run; None adopts any rollout.
    """

    def __init__(
        self,
        client: StoreClient,
        kind: TaskKind,
        settings: RolloutSettings,
        resumption: ResumePoint | None = None,
    ):
        self.client = client
        self.kind = kind
        self._settings = settings
        self._resumption = resumption

    async def publish(self, policies: Iterable[PolicyResources]) -> None:
        """Publish the resources of these policy versions, each once."""
        for resources in {policy.resources_id: policy for policy in policies}.values():
            await self.client.update_resources(resources.resources_id, resources.encode())

    async def enqueue(self, rollouts: Sequence[OpenRollout], opened: dict[str, OpenRollout]) -> None:
        """Publish their policies and enqueue them in parts; adds each part to ``opened``, by rollout id.

        Raises ConfigError for a task that is too large for the hub.
        """
        if not rollouts:
            return
        await self.publish(rollout.resources for rollout in rollouts)
        config = RolloutConfig(
            timeout_seconds=self._settings.timeout_seconds,
            unresponsive_seconds=self._settings.unresponsive_seconds,
            max_attempts=self._settings.max_attempts,
            retry_condition=["failed", "timeout", "unresponsive"],  # others end the rollout
        )
        requests = [
            EnqueueRolloutRequest(
                input=rollout.task.encode(),
                mode=rollout.mode,
                resources_id=rollout.resources.resources_id,
                config=config,
                metadata=self._metadata(rollout.resources.run_name, rollout.task.task_id),
            )
            for rollout in rollouts
        ]
        left = list(rollouts)
        waiting = [*batches(requests, _size, (_CHARACTERS_PER_REQUEST,))]
        while waiting:
            batch = waiting.pop(0)
            try:
                enqueued = await self.client.enqueue_many_rollouts(batch)
            except aiohttp.ClientResponseError as error:
                if error.status != TOO_LARGE:
                    raise
                if middle := len(batch) // 2:  # a proxy may accept less than the hub
                    waiting[:0] = batch[:middle], batch[middle:]
                    continue
                raise ConfigError(
                    f"task {left[0].task.task_id} is too large: {error.message}. Shorten the task. If its size in "
                    f"bytes is the problem, the hub's --max-request-mb or a proxy's limit can also be raised"
                ) from error
            # At once, so that they can be cancelled if a later part fails.
            part, left = left[: len(batch)], left[len(batch) :]
            opened.update((found.rollout_id, rollout) for found, rollout in zip(enqueued, part, strict=True))
        # Again, since a hub that restarted in between has the rollouts without their resources.
        await self.publish(rollout.resources for rollout in rollouts)

    def _metadata(self, run: str, task_id: str) -> dict[str, object]:
        number = self._resumption.number if self._resumption else 0
        # The key makes a retry idempotent, but allows a resumed run to repeat a task.
        key = f"{run}/{task_id}/{number}" if number else f"{run}/{task_id}"
        return {"task_id": task_id, "run": run, _PROCESS: number, IDEMPOTENCY_KEY: key}

    async def adopt(
        self, tasks: Sequence[Task], resources: PolicyResources, mode: RolloutMode = "train", oldest_version: int = 0
    ) -> tuple[dict[str, OpenRollout], list[Task], int]:
        """Find the rollouts of these tasks that an earlier process enqueued.

        Returns the usable ones by rollout id; the tasks without one, to be enqueued; and the number of tasks with any
        rollout in the hub. Not usable: failed or cancelled ones, those of lost weights (``ResumePoint``), and those
        enqueued for a policy older than ``oldest_version``. Of several rollouts of one task (a stock hub may enqueue a
        request twice) the most advanced is adopted, and the others are cancelled.
        """
        found = await self._find(resources.run_name, {task.task_id for task in tasks})
        adopted: dict[str, OpenRollout] = {}
        missing: list[Task] = []
        for task in tasks:
            usable = [one for one in found.get(task.task_id, ()) if one.status in _BEST_TO_ADOPT]
            best = None
            for rollout in sorted(usable, key=lambda rollout: _BEST_TO_ADOPT.index(rollout.status)):
                if best is None and version_of(rollout) >= oldest_version and await self._is_usable(rollout):
                    best = rollout
                elif rollout.status not in CLOSED:
                    await self.client.cancel_rollout(rollout.rollout_id)
            if best is None:
                missing.append(task)
            else:
                own = resources.model_copy(update={"version": version_of(best)})
                adopted[best.rollout_id] = OpenRollout(task, own, mode)
        if adopted:
            logger.info("adopted %d of %d rollouts of an earlier process", len(adopted), len(tasks))
            # Their policies may have new endpoints.
            await self.publish(rollout.resources for rollout in adopted.values())
        return adopted, missing, len(found)

    async def _find(self, run_name: str, task_ids: Collection[str]) -> dict[str, list[Rollout]]:
        """The run's rollouts of these tasks by task, in any state; the protocol cannot search by metadata."""
        found: dict[str, dict[str, Rollout]] = defaultdict(dict)
        async for page in iter_rollouts(self.client):
            known = len(found)
            for rollout in page:
                metadata = rollout.metadata or {}
                task_id = metadata.get("task_id")
                if metadata.get("run") == run_name and isinstance(task_id, str) and task_id in task_ids:
                    found[task_id][rollout.rollout_id] = rollout
            # One more page after all are found, for duplicates of a repeated request.
            if len(found) == known == len(task_ids):
                break
        return {task_id: list(rollouts.values()) for task_id, rollouts in found.items()}

    async def _is_usable(self, rollout: Rollout) -> bool:
        """Whether no lost weights have sampled, or will sample, the rollout."""
        if self._resumption is None:
            return True
        number = (rollout.metadata or {}).get(_PROCESS, 0)
        if not isinstance(number, int):
            return False
        newest = self._resumption.newest_version_of(number)
        if version_of(rollout) > newest:
            return False
        if not self._settings.max_policy_lag:
            return True
        # Weights change during rollouts, so only a finished one is certain.
        if rollout.status != "succeeded":
            return False
        spans, call = await self.client.query_spans(rollout.rollout_id), self.kind.call
        try:
            return all(call.decode(span).newest_version <= newest for span in spans if call.is_in(span))
        except MalformedSpan:
            return False

    async def cancel(self, rollout_ids: Collection[str]) -> None:
        # Queried first, since a stock hub turns a finished rollout into a cancelled one.
        for rollout in await self.client.query_rollouts(rollout_id_in=list(rollout_ids)) if rollout_ids else ():
            if rollout.status not in CLOSED:
                await self.client.cancel_rollout(rollout.rollout_id)

    async def cancel_later(self, newest: Mapping[str, int]) -> None:
        """Cancel open rollouts that an earlier process enqueued for later policies. newest: run's name -> version."""
        found = {
            rollout.rollout_id
            async for page in iter_rollouts(self.client)  # not by status: those pages would shift as rollouts end
            for rollout in page
            if rollout.status not in CLOSED
            and version_of(rollout) > newest.get(str((rollout.metadata or {}).get("run")), math.inf)
        }
        for rollout_id in found:
            await self.client.cancel_rollout(rollout_id)

    async def read(self, rollout: Rollout, opened: OpenRollout, may_lack_spans: bool) -> PlayedRollouts | None:
        """The result of a closed rollout; None if it succeeded without spans, unless ``may_lack_spans``."""
        spans = list(await self.client.query_spans(rollout.rollout_id))
        if rollout.status == "succeeded" and not spans and not may_lack_spans:
            return None
        attempt = getattr(rollout, "attempt", None)
        retried = []
        if attempt is not None and attempt.sequence_id > 1:
            attempts = await self.client.query_attempts(rollout.rollout_id)
            retried = [reason_of(one) for one in attempts if one.attempt_id != attempt.attempt_id]
        return read_rollout(self.kind, rollout, spans, opened.resources, retried, opened.task.task_id)


def _size(request: EnqueueRolloutRequest) -> tuple[int]:
    return (len(json.dumps(request.model_dump())),)


def version_of(rollout: Rollout) -> int:
    """The policy version for which a rollout was enqueued; -1 for resources of no run."""
    version = (rollout.resources_id or "").rpartition(VERSION_SEPARATOR)[2]
    return int(version) if version.isdecimal() and len(version) < _VERSION_DIGITS else -1
