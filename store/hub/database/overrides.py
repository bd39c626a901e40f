"""Overrides of the stock store's internal methods: closed states are final, unknown ids raise, reads are in bulk."""

import secrets
import time
from collections.abc import Iterable, Sequence
from typing import Any

from agentlightning import Attempt, AttemptedRollout, Rollout, Span
from agentlightning.store.base import UNSET, Unset, is_queuing
from agentlightning.store.utils import rollout_status_from_attempt

from store.errors import Conflict, UnknownId
from store.hub.database.collections import SqlCollections
from store.hub.database.database import retried
from store.hub.database.transitions import CLOSED_ATTEMPT, follows, may_change, status_after_span
from store.hub.database.watchdog import WatchedStore
from store.protocol import CLOSED

LARGEST_SEQUENCE_ID = 2**53

RolloutUpdate = tuple[Rollout, Sequence[str]]
"""A rollout and its changed fields."""


class StoreOverrides(WatchedStore):
    """Base class of ``SqlLightningStore``."""

    async def _add_many_spans_helper(self, rollout_id: str, attempt_id: str, spans: Sequence[Span]) -> Sequence[Span]:
        added = await self.collections.spans.insert_new(spans)
        # UnknownId rolls back the insertion. A heartbeat may be of the attempt "latest", a span needs the attempt's id.
        if added and attempt_id != "latest":
            await self._post_add_spans(added, rollout_id, attempt_id)
        else:
            await self._attempt(rollout_id, attempt_id)
        return added

    async def _on_attempt_heartbeat(self, rollout_id: str, attempt_id: str) -> RolloutUpdate | None:
        rollout = await self._rollout(rollout_id)
        attempt, latest = await self._attempt_and_latest(rollout_id, attempt_id)
        attempt.last_heartbeat_time = time.time()
        attempt.status = status_after_span(rollout, attempt, latest)
        await self._replace_attempt(rollout, attempt)
        if attempt.status == "running" != rollout.status and follows(rollout, attempt, latest):
            return await self._unlocked_update_rollout_only(self.collections, rollout_id, status="running")
        return None

    async def _unlocked_update_attempt_and_rollout(
        self, collections: SqlCollections, rollout_id: str, attempt_id: str, **given: Any
    ) -> tuple[Attempt, RolloutUpdate | None, bool]:
        rollout = await self._rollout(rollout_id)
        attempt, latest = await self._attempt_and_latest(rollout_id, attempt_id)
        changes = {name: value for name, value in given.items() if not isinstance(value, Unset)}
        status = changes.get("status", attempt.status)
        if status != attempt.status and not may_change(rollout, attempt, latest):
            raise _closed(f"attempt {attempt.attempt_id} of rollout {rollout_id}", attempt.status, status)
        if "status" in changes and status in CLOSED_ATTEMPT and attempt.end_time is None:
            changes["end_time"] = time.time()
        attempt = Attempt.model_validate({**attempt.model_dump(), **changes})
        await self._replace_attempt(rollout, attempt)

        rollout_update = None
        if "status" in changes and follows(rollout, attempt, latest):
            rollout_status = await rollout_status_from_attempt(attempt, rollout.config)
            if rollout_status != rollout.status:
                rollout_update = await self._unlocked_update_rollout_only(
                    collections, rollout_id, status=rollout_status
                )
        return attempt, rollout_update, bool(attempt.worker_id) and bool({"status", "worker_id"} & changes.keys())

    async def _replace_attempt(self, rollout: Rollout, attempt: Attempt) -> None:
        await self.collections.attempts.replace([attempt])
        self._note_deadline(rollout, attempt)

    async def _unlocked_update_rollout_only(
        self, collections: SqlCollections, rollout_id: str, **changes: Any
    ) -> RolloutUpdate:
        rollout = await collections.rollouts.get({"rollout_id": {"exact": rollout_id}})
        if rollout is None:
            raise UnknownId(f"Item does not exist with primary key(s): rollout_id={rollout_id!r}")
        resources_id = changes.get("resources_id")
        if isinstance(resources_id, str):
            await self._check_resources([resources_id])
        if rollout.status in CLOSED:
            status = changes.pop("status", UNSET)
            if not isinstance(status, Unset) and status != rollout.status:
                raise _closed(f"rollout {rollout_id}", rollout.status, status)
        if not isinstance(changes.get("config", UNSET), Unset):
            self._next_scan_at = 0.0  # its timeouts may have changed
        return await super()._unlocked_update_rollout_only(collections, rollout_id, **changes)

    async def _post_update_rollout(self, rollouts: Sequence[RolloutUpdate], skip_enqueue: bool = False) -> None:
        await super()._post_update_rollout(rollouts, skip_enqueue=skip_enqueue)
        # The stock store leaves rollouts in the queue that no longer wait, and skips them later.
        await self.collections.rollout_queue.discard(
            [one.rollout_id for one, fields in rollouts if "status" in fields and not is_queuing(one)]
        )

    async def _post_dequeue_rollouts(
        self, rollout_ids: Sequence[str], worker_id: str | None
    ) -> list[tuple[AttemptedRollout, Sequence[str]]]:
        """One query for all rollouts; the stock method makes several for each."""
        await self.collections.lock_rollouts(rollout_ids)
        found = {(rollout.rollout_id,): rollout for rollout in await self._rollouts(rollout_ids)}
        waiting = [one for id_ in rollout_ids if (one := found.get((id_,))) and is_queuing(one)]
        latest = await self.collections.latest_attempts(rollout.rollout_id for rollout in waiting)
        attempted = [
            AttemptedRollout(
                **{**vars(rollout), "status": "preparing"},
                attempt=Attempt(
                    rollout_id=rollout.rollout_id,
                    attempt_id="at-" + secrets.token_hex(4),
                    sequence_id=latest[rollout.rollout_id].sequence_id + 1 if rollout.rollout_id in latest else 1,
                    start_time=time.time(),
                    status="preparing",
                    worker_id=worker_id,
                ),
            )
            for rollout in waiting
        ]
        await self.collections.attempts.insert([one.attempt for one in attempted])
        taken = [rollout.model_copy(update={"status": "preparing"}) for rollout in waiting]
        await self.collections.rollouts.replace(taken, found)
        for one in attempted:
            self._note_deadline(one, one.attempt)
        return [(one, ["status"]) for one in attempted]

    async def _unlocked_many_rollouts_to_attempted_rollouts(
        self, collections: SqlCollections, rollouts: Sequence[Rollout]
    ) -> list[Rollout | AttemptedRollout]:
        """One query for all rollouts; the stock method makes one for each."""
        latest = await collections.latest_attempts(rollout.rollout_id for rollout in rollouts)
        return [
            AttemptedRollout(**vars(rollout), attempt=latest[rollout.rollout_id])
            if rollout.rollout_id in latest
            else rollout
            for rollout in rollouts
        ]

    async def _check_resources(self, resources_ids: Iterable[str | None]) -> None:
        for resources_id in set(resources_ids) - {None}:
            if await self.collections.resources.get({"resources_id": {"exact": resources_id}}) is None:
                raise UnknownId(f"there are no resources {resources_id!r}")

    @retried
    async def _rollouts(self, rollout_ids: Sequence[str]) -> list[Rollout]:
        return list(await self.collections.rollouts.query({"rollout_id": {"within": rollout_ids}}))

    async def _rollout(self, rollout_id: str) -> Rollout:
        rollout = await self.collections.rollouts.get({"rollout_id": {"exact": rollout_id}})
        if rollout is None:
            raise UnknownId(f"Rollout {rollout_id} not found")
        return rollout

    async def _attempt(self, rollout_id: str, attempt_id: str) -> Attempt:
        attempt = await self.collections.attempts.get(
            {"rollout_id": {"exact": rollout_id}, "attempt_id": {"exact": attempt_id}}
        )
        if attempt is None:
            await self._rollout(rollout_id)
            raise UnknownId(f"Attempt {attempt_id} not found for rollout {rollout_id}")
        return attempt

    async def _attempt_and_latest(self, rollout_id: str, attempt_id: str) -> tuple[Attempt, Attempt]:
        """An attempt, by id or as "latest", and the latest attempt of its rollout."""
        latest = await self._unlocked_get_latest_attempt(self.collections, rollout_id)
        if latest is None:
            await self._rollout(rollout_id)
            raise UnknownId(f"No attempts found for rollout {rollout_id}")
        return latest if attempt_id in ("latest", latest.attempt_id) else await self._attempt(
            rollout_id, attempt_id
        ), latest


def _closed(what: str, status: str, wanted: str) -> Conflict:
    return Conflict(f"{what} is {status} and cannot become {wanted}")


def check_sequence_ids(sequence_ids: Iterable[int]) -> None:
    """Raises ValueError for a sequence id that some JSON parsers cannot read exactly."""
    for sequence_id in sequence_ids:
        if not 0 <= sequence_id <= LARGEST_SEQUENCE_ID:
            raise ValueError(f"a span's sequence id must be from 0 to 2**53, got {sequence_id!r}")
