"""agentlightning's store in a database, with stronger guarantees than the stock store.

Every call is one transaction, so a killed hub has done all of it or nothing. Closed states are final
(``store.hub.database.transitions``), enqueueing is idempotent by a key, and unknown ids are rejected.
"""

import asyncio
import json
import secrets
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any, Literal

from agentlightning import AttemptedRollout, EnqueueRolloutRequest, Rollout, RolloutConfig, Span
from agentlightning.store.base import LightningStoreCapabilities, LightningStoreStatistics
from agentlightning.store.collection_based import healthcheck_before, tracked
from agentlightning.types import FilterOptions, NamedResources, ResourcesUpdate, SortOptions, TaskInput

from store.errors import Conflict
from store.hub.database.collections import check_page
from store.hub.database.completions import Completions
from store.hub.database.database import Database, in_one_transaction, in_rollout_transaction, retried
from store.hub.database.overrides import StoreOverrides, check_sequence_ids
from store.protocol import CLOSED
from store.schema import IDEMPOTENCY_KEY

_LONGEST_WAIT_SECONDS = 600.0
_BATCH = 200


class SqlLightningStore(StoreOverrides):
    """The hub's store.

    scan_debounce_seconds: minimum interval between scans for overdue attempts as part of other calls; by default there
        are none, and the server calls ``close_overdue`` regularly.
    """

    def __init__(self, database: Database, **options: Any):
        super().__init__(database, **options)
        self.completions = Completions(database)

    @property
    def capabilities(self) -> LightningStoreCapabilities:
        """thread_safe: our server has one thread; else the stock server would hold a thread lock while it awaits the
        database, and deadlock its event loop.
        """
        return LightningStoreCapabilities(thread_safe=True, async_safe=True, zero_copy=False, otlp_traces=False)

    async def statistics(self) -> LightningStoreStatistics:
        """The stock counts, and the database's size."""
        counts: Any = {"database_bytes": await self.collections.database.size_bytes()}
        return (await super().statistics()) | counts

    # These only read, so that a broken connection can be retried.
    query_rollouts = retried(StoreOverrides.query_rollouts)
    get_rollout_by_id = retried(StoreOverrides.get_rollout_by_id)
    query_attempts = retried(StoreOverrides.query_attempts)
    get_latest_attempt = retried(StoreOverrides.get_latest_attempt)
    query_spans = retried(StoreOverrides.query_spans)
    query_resources = retried(StoreOverrides.query_resources)
    get_resources_by_id = retried(StoreOverrides.get_resources_by_id)
    query_workers = retried(StoreOverrides.query_workers)
    get_worker_by_id = retried(StoreOverrides.get_worker_by_id)

    # Each of these is several transactions in the stock store.
    dequeue_rollout = in_one_transaction(StoreOverrides.dequeue_rollout)
    dequeue_many_rollouts = in_one_transaction(StoreOverrides.dequeue_many_rollouts)
    update_worker = in_one_transaction(StoreOverrides.update_worker)
    update_rollout = in_rollout_transaction(StoreOverrides.update_rollout)
    update_attempt = in_rollout_transaction(StoreOverrides.update_attempt)
    add_otel_span = in_rollout_transaction(StoreOverrides.add_otel_span)

    async def add_span(self, span: Span) -> Span | None:
        added = await self.add_many_spans([span])
        return added[0] if added else None

    @in_one_transaction
    async def add_many_spans(self, spans: Sequence[Span]) -> Sequence[Span]:
        check_sequence_ids(span.sequence_id for span in spans)
        await self.collections.lock_rollouts(span.rollout_id for span in spans)
        return await super().add_many_spans(spans)

    @in_one_transaction
    async def start_rollout(self, *arguments: Any, **options: Any) -> AttemptedRollout:
        """Raises UnknownId for missing resources."""
        started = await super().start_rollout(*arguments, **options)
        await self._check_resources([started.resources_id])  # an error rolls it back
        self._note_deadline(started, started.attempt)
        return started

    async def enqueue_rollout(
        self,
        input: TaskInput,
        mode: Literal["train", "val", "test"] | None = None,
        resources_id: str | None = None,
        config: RolloutConfig | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> Rollout:
        request = EnqueueRolloutRequest(
            input=input, mode=mode, resources_id=resources_id, config=config, metadata=metadata
        )
        (rollout,) = await self.enqueue_many_rollouts([request])
        return rollout

    @in_one_transaction
    @tracked("enqueue_many_rollouts")
    @healthcheck_before
    async def enqueue_many_rollouts(self, rollouts: Sequence[EnqueueRolloutRequest]) -> Sequence[Rollout]:
        """Enqueue tasks; for a known ``IDEMPOTENCY_KEY``, return the existing rollout.

        A cancelled or failed rollout releases its key, so that a resumed run can enqueue the task again.
        Raises UnknownId for missing resources, Conflict for a known key with another input.
        """
        await self._check_resources([request.resources_id for request in rollouts])
        keys = [_idempotency_key(request) for request in rollouts]
        before = await self._enqueued_before({key for key in keys if key is not None})
        new: dict[str | int, EnqueueRolloutRequest] = {}  # by key, or by place where there is none
        for place, (request, key) in enumerate(zip(rollouts, keys, strict=True)):
            earlier = None if key is None else before.get(key) or new.get(key)
            if earlier is None:
                new[place if key is None else key] = request
            elif _as_stored(earlier.input) != _as_stored(request.input):
                raise Conflict(f"the {IDEMPOTENCY_KEY} {key!r} belongs to a task with another input")
        added = dict(zip(new, await self._enqueue_new(list(new.values())), strict=True)) if new else {}
        await self.collections.idempotency_keys.set_many(
            {key: rollout.rollout_id for key, rollout in added.items() if isinstance(key, str)}
        )
        found = {**before, **added}
        return [found[place if key is None else key] for place, key in enumerate(keys)]

    async def _enqueue_new(self, requests: Sequence[EnqueueRolloutRequest]) -> list[Rollout]:
        """As the stock method, which reads the latest resources in full, and whose ids are random."""
        latest = None
        if any(request.resources_id is None for request in requests):
            latest = await self.collections.marks.get("resources")
        # Ids that begin with the time are adjacent in indexes: fewer pages are written.
        milliseconds = f"{int(1000 * time.time()) & 0xFFFFFFFF:08x}"
        digits = secrets.token_hex(6 * len(requests))
        rollouts = [
            Rollout(
                rollout_id=f"ro-{milliseconds}{digits[12 * number : 12 * number + 12]}",
                input=request.input,
                mode=request.mode,
                resources_id=latest if request.resources_id is None else request.resources_id,
                start_time=time.time(),  # distinct, since rollouts are sorted by it
                status="queuing",
                config=RolloutConfig() if request.config is None else request.config.model_copy(),
                metadata={} if request.metadata is None else dict(request.metadata),
            )
            for number, request in enumerate(requests)
        ]
        await self.collections.rollout_queue.enqueue([rollout.rollout_id for rollout in rollouts])
        await self.collections.rollouts.insert(rollouts)
        return rollouts

    async def _enqueued_before(self, keys: set[str]) -> dict[str, Rollout]:
        if not keys:
            return {}
        await self.collections.database.try_lock("enqueue with a key", wait=True)  # or two hubs find none
        known = await self.collections.idempotency_keys.get_many(keys)
        rollouts = {rollout.rollout_id: rollout for rollout in await self._rollouts(list(known.values()))}
        return {
            key: rollouts[rollout_id]
            for key, rollout_id in known.items()
            if rollout_id in rollouts and rollouts[rollout_id].status not in ("cancelled", "failed")
        }

    @in_one_transaction
    async def add_resources(self, resources: NamedResources) -> ResourcesUpdate:
        return await self._made_latest(await super().add_resources(resources))

    @in_one_transaction
    async def update_resources(self, resources_id: str, resources: NamedResources) -> ResourcesUpdate:
        """As in the stock store, resources that do not exist are added."""
        await self.collections.database.try_lock("resources", wait=True)  # or two hubs add them
        return await self._made_latest(await super().update_resources(resources_id, resources))

    async def _made_latest(self, update: ResourcesUpdate) -> ResourcesUpdate:
        await self.collections.marks.set("resources", update.resources_id)
        return update

    async def _get_latest_resources(self) -> ResourcesUpdate | None:
        latest = await self.collections.marks.get("resources")
        return None if latest is None else await self.get_resources_by_id(latest)

    @in_rollout_transaction
    async def start_attempt(self, rollout_id: str, worker_id: str | None = None) -> AttemptedRollout:
        """Raises UnknownId for a missing rollout, Conflict for a closed one."""
        rollout = await self._rollout(rollout_id)
        if rollout.status in CLOSED:
            raise Conflict(f"rollout {rollout_id} is closed ({rollout.status}); enqueue its task again instead")
        started = await super().start_attempt(rollout_id, worker_id)
        self._note_deadline(started, started.attempt)
        return started

    @in_one_transaction
    async def get_next_span_sequence_id(self, rollout_id: str, attempt_id: str) -> int:
        """Raises UnknownId for a missing attempt."""
        (sequence_id,) = await self.get_many_span_sequence_ids([(rollout_id, attempt_id)])
        return sequence_id

    async def get_many_span_sequence_ids(self, rollout_attempt_ids: Sequence[tuple[str, str]]) -> Sequence[int]:
        """ "latest" is the latest attempt. Raises UnknownId for a missing attempt."""
        return await self._next_numbers(rollout_attempt_ids) if rollout_attempt_ids else []

    @in_one_transaction
    async def _next_numbers(self, rollout_attempt_ids: Sequence[tuple[str, str]]) -> Sequence[int]:
        for rollout_id, attempt_id in set(rollout_attempt_ids):
            await self._attempt_and_latest(rollout_id, attempt_id)
        return await super().get_many_span_sequence_ids(rollout_attempt_ids)

    async def _issue_many_span_sequence_ids(self, rollout_ids: list[str]) -> list[int]:
        await self.collections.lock_rollouts(rollout_ids)
        issued = await super()._issue_many_span_sequence_ids(rollout_ids)
        check_sequence_ids(issued)
        return issued

    @healthcheck_before
    async def wait_for_rollouts(self, *, rollout_ids: list[str], timeout: float | None = None) -> list[Rollout]:
        """The rollouts that close within ``timeout`` seconds (ten minutes at most), in the given order.

        Missing rollouts are ignored.
        """
        seconds = _LONGEST_WAIT_SECONDS if timeout is None else min(timeout, _LONGEST_WAIT_SECONDS)
        if seconds > 0:  # NaN is not
            deadline = time.monotonic() + seconds
            async with self.completions.watched() as closings:
                waited = {one.rollout_id for one in await self._rollouts(rollout_ids) if one.status not in CLOSED}
                while waited:
                    await asyncio.wait([closings], timeout=max(deadline - time.monotonic(), 0.0))
                    if not closings.done():
                        break
                    closed, closings = closings.result()
                    waited -= closed
        found = {one.rollout_id: one for one in await self._rollouts(rollout_ids) if one.status in CLOSED}
        return [found[rollout_id] for rollout_id in rollout_ids if rollout_id in found]

    async def all_rollouts(
        self, *, sort_by: str | None, sort_order: Literal["asc", "desc"], limit: int, offset: int, **filters: Any
    ) -> tuple[int, AsyncIterator[list[Rollout]]]:
        """``query_rollouts`` for a large page: the number of matches, and batches, between which other calls proceed.

        The set of rollouts is fixed at the first batch; each is read with its batch.
        """
        check_page(limit, offset)
        wanted: FilterOptions = {
            "status": {"within": filters["status_in"]},
            "rollout_id": {"contains": filters["rollout_id_contains"]},
            "_aggregate": filters["filter_logic"],
        }
        sort = SortOptions(name=sort_by, order=sort_order) if sort_by else None
        positions = await self.collections.rollouts.positions(wanted, sort)

        async def batches() -> AsyncIterator[list[Rollout]]:
            end = len(positions) if limit == -1 else min(offset + limit, len(positions))
            for start in range(offset, end, _BATCH):
                yield await self._batch(positions[start : min(start + _BATCH, end)], sort)
                await asyncio.sleep(0)

        return len(positions), batches()

    @retried
    async def _batch(self, positions: Sequence[int], sort: SortOptions | None) -> list[Rollout]:
        async with self.collections.atomic(mode="r"):
            batch = await self.collections.rollouts.at(positions, sort)
            return await self._unlocked_many_rollouts_to_attempted_rollouts(self.collections, batch)

    async def finished_since(self, after: str | None) -> tuple[list[str], str]:
        """The rollouts that closed since the mark ``after``, in order, and the next mark.

        after: None for the present. Raises ValueError for a mark of another database.
        """
        database = await self.collections.marks.get("database")
        last = await self.completions.last()
        if after is None:
            return [], f"{database}/{last}"
        origin, _, number = after.partition("/")
        if origin != database or not number.isdecimal() or int(number) > last:
            raise ValueError(f"{after!r} is not a mark of this hub's database; request a new one with after=null")
        found = await self.completions.after(int(number))
        return [rollout_id for _, rollout_id in found], f"{database}/{found[-1][0] if found else number}"


def _idempotency_key(request: EnqueueRolloutRequest) -> str | None:
    key = (request.metadata or {}).get(IDEMPOTENCY_KEY)
    if key is not None and not isinstance(key, str):
        raise ValueError(f"the {IDEMPOTENCY_KEY} must be text, got {key!r}")
    return key


def _as_stored(value: TaskInput) -> str:
    """A task's input as canonical text, equal for a sent and a stored input."""
    return json.dumps(value, sort_keys=True)
