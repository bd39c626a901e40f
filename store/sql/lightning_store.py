"""agentlightning's store in a database, with the promises that the stock one does not make.

Every call is one transaction, so a hub that is killed has done all of it or nothing. Closed states stay
(``store.transitions``), a repeated enqueue is recognised by its key, and unknown ids are refused.
"""

import asyncio
import functools
import json
import logging
import math
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar

from agentlightning import Attempt, AttemptedRollout, EnqueueRolloutRequest, Rollout, RolloutConfig, Span
from agentlightning.store.base import (
    UNSET,
    LightningStoreCapabilities,
    LightningStoreStatistics,
    Unset,
)
from agentlightning.store.collection_based import CollectionBasedLightningStore, healthcheck_before
from agentlightning.store.utils import rollout_status_from_attempt
from agentlightning.types import AttemptStatus, NamedResources, ResourcesUpdate, RolloutStatus, TaskInput
from agentlightning.utils.id import generate_id
from agentlightning.utils.metrics import MetricsBackend

from store.errors import Conflict, UnknownId
from store.schema import IDEMPOTENCY_KEY
from store.sql.collections import SqlCollections
from store.sql.database import Database, DatabaseAway
from store.transitions import CLOSED_ROLLOUT, WAITING_ROLLOUT, follows, may_change, status_after_span

logger = logging.getLogger(__name__)

LARGEST_SEQUENCE_ID = 2**53

_POLL_SECONDS = 0.05
_AGAIN_SECONDS = 5.0
_MOST_COMPLETIONS = 10_000
_LONGEST_LOOK_AWAY_SECONDS = 10.0
_LOOK_AWAY_BESIDE_OTHERS_SECONDS = 1.0  # what another hub has handed out is not known here
_OPEN_ATTEMPT = ("preparing", "running")

_UNDER_WAY = (
    "FROM rollouts AS playing JOIN attempts USING (rollout_id) "
    "WHERE playing.status IN ('preparing', 'running') AND sequence_id = "
    "(SELECT MAX(sequence_id) FROM attempts AS other WHERE other.rollout_id = playing.rollout_id)"
)
"""The rollouts that are being played, with their latest attempts."""

RolloutUpdate = tuple[Rollout, Sequence[str]]
"""A rollout and the fields of it that have changed."""

P = ParamSpec("P")
Result = TypeVar("Result")
Store = TypeVar("Store", bound="SqlLightningStore")


def _in_one_transaction(
    method: Callable[Concatenate[Any, P], Awaitable[Result]],
) -> Callable[Concatenate[Any, P], Awaitable[Result]]:
    """All that a call changes is kept, or nothing of it; the stock methods commit bit by bit.

    What the database undid because of others, or because it went away, is done again for some seconds.
    """

    @functools.wraps(method)
    async def wrapper(self: "SqlLightningStore", *args: P.args, **kwargs: P.kwargs) -> Result:
        is_part = self.collections.database.in_transaction()
        deadline = time.monotonic() + _AGAIN_SECONDS
        while True:
            try:
                async with self.collections.atomic(mode="rw", commit=True):
                    return await method(self, *args, **kwargs)
            except DatabaseAway as error:
                if is_part or not error.undone or time.monotonic() > deadline:
                    raise
            await asyncio.sleep(random.uniform(0.01, 0.1))

    return wrapper


def _alone_with_its_rollout(
    method: Callable[Concatenate[Any, str, P], Awaitable[Result]],
) -> Callable[Concatenate[Any, str, P], Awaitable[Result]]:
    """One transaction, in which nobody else changes the rollout of that id or what belongs to it."""

    @functools.wraps(method)
    async def wrapper(self: "SqlLightningStore", rollout_id: str, *args: P.args, **kwargs: P.kwargs) -> Result:
        await self.collections.lock_rollouts([rollout_id])
        return await method(self, rollout_id, *args, **kwargs)

    return _in_one_transaction(wrapper)


_Stock = CollectionBasedLightningStore[SqlCollections]


class SqlLightningStore(_Stock):
    """The hub's store.

    scan_debounce_seconds: the shortest time between two looks for overdue attempts that calls take by the way; whoever
        runs the store has ``close_overdue`` called now and then, so that they are noticed without a call, too.
    """

    def __init__(
        self, database: Database, *, tracker: MetricsBackend | None = None, scan_debounce_seconds: float = 1.0
    ):
        super().__init__(
            SqlCollections(database, tracker), tracker=tracker, scan_debounce_seconds=scan_debounce_seconds
        )
        self._none_overdue_before = 0.0

    @property
    def capabilities(self) -> LightningStoreCapabilities:
        """Safe to use from tasks; with SQLite from threads, too.

        With PostgreSQL there is one event loop. The stock server, were it told so, would hold a lock of threads over
        every wait for the database, and stop that loop for ever.
        """
        return LightningStoreCapabilities(thread_safe=True, async_safe=True, zero_copy=False, otlp_traces=False)

    async def statistics(self) -> LightningStoreStatistics:
        """The stock counts, which are kept and not counted anew, and the file's size."""
        return {**(await super().statistics()), "database_bytes": await self.collections.database.size_bytes()}

    def begin_silence_anew(self) -> None:
        """What runners could not say until now, since the database was away, does not count as their silence."""
        self._launch_time = time.time()

    async def close(self) -> None:
        """Let go of the database."""
        await self.collections.database.close()

    # Each of these is several transactions in the stock store.
    dequeue_rollout = _in_one_transaction(_Stock.dequeue_rollout)
    dequeue_many_rollouts = _in_one_transaction(_Stock.dequeue_many_rollouts)
    add_otel_span = _alone_with_its_rollout(_Stock.add_otel_span)

    @_in_one_transaction
    async def add_span(self, span: Span) -> Span | None:
        """See the contract."""
        await self.collections.lock_rollouts([span.rollout_id])
        return await super().add_span(span)

    @_in_one_transaction
    async def add_many_spans(self, spans: Sequence[Span]) -> Sequence[Span]:
        """See the contract."""
        await self.collections.lock_rollouts(span.rollout_id for span in spans)
        return await super().add_many_spans(spans)

    @_alone_with_its_rollout
    async def update_rollout(
        self,
        rollout_id: str,
        input: TaskInput | Unset = UNSET,
        mode: Literal["train", "val", "test"] | Unset | None = UNSET,
        resources_id: str | Unset | None = UNSET,
        status: RolloutStatus | Unset = UNSET,
        config: RolloutConfig | Unset = UNSET,
        metadata: dict[str, Any] | Unset | None = UNSET,
    ) -> Rollout:
        """See the contract. Conflict, and nothing is changed, for a status that a closed rollout cannot have."""
        rollout = await super().update_rollout(rollout_id, input, mode, resources_id, status, config, metadata)
        self._none_overdue_before = 0.0  # it may have got another patience, or be under way now
        _check_taken(f"rollout {rollout_id}", rollout.status, status)
        return rollout

    @_alone_with_its_rollout
    async def update_attempt(
        self,
        rollout_id: str,
        attempt_id: str,
        status: AttemptStatus | Unset = UNSET,
        worker_id: str | Unset = UNSET,
        last_heartbeat_time: float | Unset = UNSET,
        metadata: dict[str, Any] | Unset | None = UNSET,
    ) -> Attempt:
        """See the contract. Conflict, and nothing is changed, for a status that a closed attempt cannot have."""
        attempt = await super().update_attempt(rollout_id, attempt_id, status, worker_id, last_heartbeat_time, metadata)
        _check_taken(f"attempt {attempt.attempt_id} of rollout {rollout_id}", attempt.status, status)
        return attempt

    @_in_one_transaction
    async def start_rollout(
        self,
        input: TaskInput,
        mode: Literal["train", "val", "test"] | None = None,
        resources_id: str | None = None,
        config: RolloutConfig | None = None,
        metadata: dict[str, Any] | None = None,
        worker_id: str | None = None,
    ) -> AttemptedRollout:
        """See the contract. UnknownId for resources that are not there."""
        await self._check_resources([resources_id])
        started = await super().start_rollout(input, mode, resources_id, config, metadata, worker_id)
        self._expect_end_of(started, started.attempt)
        return started

    async def enqueue_rollout(
        self,
        input: TaskInput,
        mode: Literal["train", "val", "test"] | None = None,
        resources_id: str | None = None,
        config: RolloutConfig | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> Rollout:
        """See ``enqueue_many_rollouts``."""
        request = EnqueueRolloutRequest(
            input=input, mode=mode, resources_id=resources_id, config=config, metadata=metadata
        )
        (rollout,) = await self.enqueue_many_rollouts([request])
        return rollout

    @_in_one_transaction
    async def enqueue_many_rollouts(self, rollouts: Sequence[EnqueueRolloutRequest]) -> Sequence[Rollout]:
        """Enqueue tasks, except those whose ``IDEMPOTENCY_KEY`` is known, whose rollouts are returned as they are.

        A rollout that was cancelled or failed for good gives its key free: a run that is resumed enqueues it again.
        UnknownId for resources that are not there; Conflict for a known key with another input.
        """
        await self._check_resources([request.resources_id for request in rollouts])
        before = await self._enqueued_before({key for key in map(_idempotency_key, rollouts) if key is not None})
        # Where each result comes from: a rollout that is there, or a place among the new requests.
        sources: list[Rollout | int] = []
        new: list[EnqueueRolloutRequest] = []
        place_of_key: dict[str, int] = {}
        for request in rollouts:
            key = _idempotency_key(request)
            source: Rollout | int | None = None
            if key is not None:
                source = place_of_key.get(key)
                if source is None:
                    source = before.get(key)
                earlier = new[source] if isinstance(source, int) else source
                if earlier is not None and _as_stored(earlier.input) != _as_stored(request.input):
                    raise Conflict(f"the {IDEMPOTENCY_KEY} {key!r} belongs to a task with another input")
            if source is None:
                source = len(new)
                new.append(request)
                if key is not None:
                    place_of_key[key] = source
            sources.append(source)
        added = await super().enqueue_many_rollouts(new) if new else []
        await self.collections.idempotency_keys.set_many(
            {key: added[place].rollout_id for key, place in place_of_key.items()}
        )
        return [added[source] if isinstance(source, int) else source for source in sources]

    async def _enqueued_before(self, keys: set[str]) -> dict[str, Rollout]:
        if not keys:
            return {}
        await self.collections.database.lock("enqueue with a key")  # or two hubs find that it is not there
        known = await self.collections.idempotency_keys.get_many(keys)
        rollouts = {rollout.rollout_id: rollout for rollout in await self._rollouts(list(known.values()))}
        return {
            key: rollouts[rollout_id]
            for key, rollout_id in known.items()
            if rollout_id in rollouts and rollouts[rollout_id].status not in ("cancelled", "failed")
        }

    async def _check_resources(self, resources_ids: Sequence[str | None]) -> None:
        for resources_id in set(resources_ids) - {None}:
            if await self.collections.resources.get({"resources_id": {"exact": resources_id}}) is None:
                raise UnknownId(f"there are no resources {resources_id!r}")

    @_in_one_transaction
    async def add_resources(self, resources: NamedResources) -> ResourcesUpdate:
        """See the contract."""
        return await self._made_latest(await super().add_resources(resources))

    @_in_one_transaction
    async def update_resources(self, resources_id: str, resources: NamedResources) -> ResourcesUpdate:
        """See the contract; as in the stock store, resources that are not there are added."""
        return await self._made_latest(await super().update_resources(resources_id, resources))

    async def _made_latest(self, update: ResourcesUpdate) -> ResourcesUpdate:
        await self.collections.latest.set("resources", update.resources_id)
        return update

    async def _get_latest_resources(self) -> ResourcesUpdate | None:
        latest = await self.collections.latest.get("resources")
        return None if latest is None else await self.get_resources_by_id(latest)

    @_alone_with_its_rollout
    async def start_attempt(self, rollout_id: str, worker_id: str | None = None) -> AttemptedRollout:
        """See the contract. UnknownId for a rollout that is not there, Conflict for one that is closed."""
        rollout = await self._rollout(rollout_id)
        if rollout.status in CLOSED_ROLLOUT:
            raise Conflict(f"rollout {rollout_id} is closed ({rollout.status}); enqueue its task again instead")
        started = await super().start_attempt(rollout_id, worker_id)
        self._expect_end_of(started, started.attempt)
        return started

    @_in_one_transaction
    async def get_next_span_sequence_id(self, rollout_id: str, attempt_id: str) -> int:
        """See the contract. UnknownId for an attempt that is not there."""
        (sequence_id,) = await self.get_many_span_sequence_ids([(rollout_id, attempt_id)])
        return sequence_id

    @_in_one_transaction
    async def get_many_span_sequence_ids(self, rollout_attempt_ids: Sequence[tuple[str, str]]) -> Sequence[int]:
        """See the contract; "latest" stands for the latest attempt. UnknownId for an attempt that is not there."""
        for rollout_id, attempt_id in set(rollout_attempt_ids):
            if attempt_id == "latest":
                await self._latest_attempt(rollout_id)
            else:
                await self._attempt(rollout_id, attempt_id)
        return await super().get_many_span_sequence_ids(rollout_attempt_ids)

    async def _issue_many_span_sequence_ids(self, rollout_ids: list[str]) -> list[int]:
        await self.collections.lock_rollouts(rollout_ids)
        issued = await super()._issue_many_span_sequence_ids(rollout_ids)
        check_sequence_ids(issued)
        return issued

    @healthcheck_before
    async def wait_for_rollouts(self, *, rollout_ids: list[str], timeout: float | None = None) -> list[Rollout]:
        """The rollouts that are closed before ``timeout`` seconds are over, in the order asked for.

        Rollouts that are not there are not waited for.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        seen = None
        while True:
            last = await self.collections.last_completion()  # before the rollouts, so that none falls in between
            if last != seen:
                seen = last
                found = {rollout.rollout_id: rollout for rollout in await self._rollouts(rollout_ids)}
                closed = {id_: rollout for id_, rollout in found.items() if rollout.status in CLOSED_ROLLOUT}
            rest = _POLL_SECONDS if deadline is None else min(deadline - time.monotonic(), _POLL_SECONDS)
            if len(closed) == len(found) or not rest > 0:  # "not >" also ends a wait of NaN seconds
                return [closed[rollout_id] for rollout_id in rollout_ids if rollout_id in closed]
            await asyncio.sleep(rest)

    async def finished_since(self, after: str | None) -> tuple[list[str], str]:
        """The rollouts that were closed since the mark ``after``, in the order in which they were, and the next mark.

        None marks the present. ValueError for a mark of another database.
        """
        database = await self.collections.latest.get("database")
        if database is None:
            database = await self.collections.latest.set_new("database", generate_id(12))
        last = await self.collections.last_completion()
        if after is None:
            return [], f"{database}/{last}"
        origin, _, number = after.partition("/")
        if origin != database or not number.isdecimal() or int(number) > last:
            raise ValueError(f"{after!r} is no mark of this hub's database; ask for a new one")
        found = await self.collections.completed_after(int(number), _MOST_COMPLETIONS)
        return [rollout_id for _, rollout_id in found], f"{database}/{found[-1][0] if found else number}"

    @_in_one_transaction
    async def keep_alive(self, attempts: Sequence[tuple[str, str]]) -> None:
        """Attempts are being made, as their runner says: (rollout id, attempt id) of each.

        What this is not true of any more, being closed, given away or not there, stays as it is.
        """
        await self.collections.lock_rollouts(rollout_id for rollout_id, _ in attempts)
        open_attempts = await self.collections.attempts.query(
            {
                "rollout_id": {"within": [rollout_id for rollout_id, _ in attempts]},
                "attempt_id": {"within": [attempt_id for _, attempt_id in attempts]},
                "status": {"within": _OPEN_ATTEMPT},
            }
        )
        now = time.time()
        for attempt in open_attempts:
            attempt.last_heartbeat_time = now
        await self.collections.attempts.update(list(open_attempts))

    async def close_overdue(self) -> None:
        """Close the attempts that have taken too long or fallen silent; their games wait for another try, or fail.

        The games under way are looked at only when one of them may be overdue, and every ten seconds. Of several hubs
        one does it at a time, and leaves out what another is changing at this moment.
        """
        if time.time() >= self._none_overdue_before:
            await self._close_overdue()

    @_in_one_transaction
    async def _close_overdue(self) -> None:
        now = time.time()
        if not await self.collections.database.try_lock("watchdog"):
            return
        rollouts, attempts = await self._find_and_update_unhealthy_rollouts()
        await self._post_update_rollout(rollouts)
        await self._sync_workers_with_attempts(attempts)
        first_due = await self._first_due()
        several_hubs = self.collections.database.dialect.locks_rows
        away = _LOOK_AWAY_BESIDE_OTHERS_SECONDS if several_hubs else _LONGEST_LOOK_AWAY_SECONDS
        self._none_overdue_before = min(first_due, now + away)

    def _expect_end_of(self, rollout: Rollout, attempt: Attempt) -> None:
        """Have the games looked at when this one may be overdue: its attempt is new, or was heard of."""
        if attempt.status not in _OPEN_ATTEMPT:
            return
        heard = max(attempt.last_heartbeat_time or attempt.start_time, self._launch_time)
        for since, patience in (
            (attempt.start_time, rollout.config.timeout_seconds),
            (heard, rollout.config.unresponsive_seconds),
        ):
            if patience is not None:
                self._none_overdue_before = min(self._none_overdue_before, since + patience)

    # What follows are the steps of the stock methods that the promises above change.

    async def _scan_for_unhealthy_rollouts(self) -> None:
        if await self._should_scan_for_unhealthy_rollouts():
            await self.close_overdue()

    async def _insert_spans_with_fallback(self, spans: Sequence[Span]) -> Sequence[Span]:
        added = await self.collections.spans.insert_new(spans)
        if len(added) < len(spans):
            logger.debug("%d of %d spans were here before", len(spans) - len(added), len(spans))
        return added

    async def _add_many_spans_helper(self, rollout_id: str, attempt_id: str, spans: Sequence[Span]) -> Sequence[Span]:
        check_sequence_ids(span.sequence_id for span in spans)
        await self._attempt(rollout_id, attempt_id)
        added = await self._insert_spans_with_fallback(spans)
        if added:
            await self._post_add_spans(added, rollout_id, attempt_id)
        return added

    async def _on_attempt_heartbeat(self, rollout_id: str, attempt_id: str) -> RolloutUpdate | None:
        rollout = await self._rollout(rollout_id)
        attempt = await self._attempt(rollout_id, attempt_id)
        latest = await self._latest_attempt(rollout_id)
        attempt.last_heartbeat_time = time.time()
        attempt.status = status_after_span(rollout, attempt, latest)
        await self.collections.attempts.update([attempt])
        self._expect_end_of(rollout, attempt)
        if attempt.status == "running" != rollout.status and follows(rollout, attempt, latest):
            return await self._unlocked_update_rollout_only(self.collections, rollout_id, status="running")
        return None

    async def _unlocked_update_attempt_and_rollout(
        self,
        collections: SqlCollections,
        rollout_id: str,
        attempt_id: str,
        status: AttemptStatus | Unset = UNSET,
        worker_id: str | Unset = UNSET,
        last_heartbeat_time: float | Unset = UNSET,
        metadata: dict[str, Any] | Unset | None = UNSET,
    ) -> tuple[Attempt, RolloutUpdate | None, bool]:
        rollout = await self._rollout(rollout_id)
        latest = await self._latest_attempt(rollout_id)
        attempt = latest if attempt_id == "latest" else await self._attempt(rollout_id, attempt_id)
        if not isinstance(status, Unset) and status != attempt.status and not may_change(rollout, attempt, latest):
            status = UNSET
        changes: dict[str, Any] = {
            name: value
            for name, value in (
                ("status", status),
                ("worker_id", worker_id),
                ("last_heartbeat_time", last_heartbeat_time),
                ("metadata", metadata),
            )
            if not isinstance(value, Unset)
        }
        if changes.get("status") in ("succeeded", "failed", "timeout") and attempt.end_time is None:
            changes["end_time"] = time.time()
        attempt = Attempt.model_validate({**attempt.model_dump(), **changes})
        await collections.attempts.update([attempt])
        self._expect_end_of(rollout, attempt)

        rollout_update = None
        if "status" in changes and follows(rollout, attempt, latest):
            rollout_status = await rollout_status_from_attempt(attempt, rollout.config)
            if rollout_status != rollout.status:
                rollout_update = await self._unlocked_update_rollout_only(
                    collections, rollout_id, status=rollout_status
                )
        worker_concerned = bool(attempt.worker_id) and bool({"status", "worker_id"} & changes.keys())
        return attempt, rollout_update, worker_concerned

    async def _unlocked_update_rollout_only(
        self, collections: SqlCollections, rollout_id: str, **changes: Any
    ) -> RolloutUpdate:
        rollout = await self._rollout(rollout_id)
        resources_id = changes.get("resources_id")
        if isinstance(resources_id, str):
            await self._check_resources([resources_id])
        status: RolloutStatus | Unset = changes.pop("status", UNSET)
        if not isinstance(status, Unset) and rollout.status not in CLOSED_ROLLOUT:
            changes["status"] = status
        return await super()._unlocked_update_rollout_only(collections, rollout_id, **changes)

    async def _post_update_rollout(self, rollouts: Sequence[RolloutUpdate], skip_enqueue: bool = False) -> None:
        await super()._post_update_rollout(rollouts, skip_enqueue=skip_enqueue)
        # The stock store leaves games in the queue that no longer wait, and skips them later.
        await self.collections.rollout_queue.discard(
            rollout.rollout_id
            for rollout, fields in rollouts
            if "status" in fields and rollout.status not in WAITING_ROLLOUT
        )

    async def _post_dequeue_rollouts(
        self, rollout_ids: Sequence[str], worker_id: str | None
    ) -> list[tuple[AttemptedRollout, Sequence[str]]]:
        """One query for all, where the stock method makes several for each."""
        await self.collections.lock_rollouts(rollout_ids)
        found = {rollout.rollout_id: rollout for rollout in await self._rollouts(rollout_ids)}
        waiting = [one for id_ in rollout_ids if (one := found.get(id_)) is not None and one.status in WAITING_ROLLOUT]
        numbers = await self.collections.numbers_of_attempts([rollout.rollout_id for rollout in waiting])
        now = time.time()
        attempts = [
            Attempt(
                rollout_id=rollout.rollout_id,
                attempt_id="at-" + generate_id(8),
                sequence_id=numbers.get(rollout.rollout_id, 0) + 1,
                start_time=now,
                status="preparing",
                worker_id=worker_id,
            )
            for rollout in waiting
        ]
        for rollout in waiting:
            rollout.status = "preparing"
        await self.collections.attempts.insert(attempts)
        await self.collections.rollouts.update(waiting)
        for rollout, attempt in zip(waiting, attempts, strict=True):
            self._expect_end_of(rollout, attempt)
        return [
            (AttemptedRollout.model_validate({**dict(rollout), "attempt": attempt}), ["status"])
            for rollout, attempt in zip(waiting, attempts, strict=True)
        ]

    async def _unlocked_many_rollouts_to_attempted_rollouts(
        self, collections: SqlCollections, rollouts: Sequence[Rollout]
    ) -> list[Rollout | AttemptedRollout]:
        """One query for all, where the stock method makes one for each."""
        dialect = collections.database.dialect
        attempts = await collections.attempts.select(
            f"{dialect.among('rollout_id')} AND sequence_id = "
            "(SELECT MAX(sequence_id) FROM attempts AS other WHERE other.rollout_id = attempts.rollout_id)",
            [dialect.listed(rollout.rollout_id for rollout in rollouts)],
        )
        latest = {attempt.rollout_id: attempt for attempt in attempts}
        return [
            AttemptedRollout.model_validate({**dict(rollout), "attempt": latest[rollout.rollout_id]})
            if rollout.rollout_id in latest
            else rollout
            for rollout in rollouts
        ]

    async def _unlocked_get_running_rollouts(self, collections: SqlCollections) -> list[AttemptedRollout]:
        """Only the overdue ones, since this is asked every second.

        The time before this hub started does not count as silence: runners wait for a hub that is away.
        """
        overdue = await self._overdue(collections, "TRUE", [])
        if overdue and collections.database.dialect.locks_rows:
            locked = await collections.lock_rollouts((rollout.rollout_id for rollout in overdue), wait=False)
            dialect = collections.database.dialect
            overdue = await self._overdue(collections, dialect.among("playing.rollout_id"), [dialect.listed(locked)])
        return await self._unlocked_many_rollouts_to_attempted_rollouts(collections, overdue)

    async def _overdue(self, collections: SqlCollections, condition: str, parameters: list[Any]) -> list[Rollout]:
        due = self._due(collections)
        return await collections.rollouts.select(
            f"rollout_id IN (SELECT playing.rollout_id {_UNDER_WAY} AND {condition} AND {due} < ?)",
            [*parameters, self._launch_time, time.time()],
        )

    async def _first_due(self) -> float:
        """When the first of the rollouts under way will be overdue, if nothing is heard of it; infinity without one."""
        query = f"SELECT MIN({self._due(self.collections)}) {_UNDER_WAY}"
        ((due,),) = await self.collections.database.rows(query, [self._launch_time])
        return math.inf if due is None else due

    @staticmethod
    def _due(collections: SqlCollections) -> str:
        """When a rollout of ``_UNDER_WAY`` is overdue, as SQL; its parameter is when all of them count as heard of."""
        dialect, table = collections.database.dialect, collections.rollouts.table
        heard = dialect.greatest("COALESCE(last_heartbeat_time, attempts.start_time)", "?")
        ends = (
            f"attempts.start_time + {table.extract('timeout_seconds', 'playing')}",
            f"{heard} + {table.extract('unresponsive_seconds', 'playing')}",
        )
        return dialect.least(*(f"COALESCE({end}, {dialect.infinity})" for end in ends))

    async def _rollouts(self, rollout_ids: Sequence[str]) -> list[Rollout]:
        return list(await self.collections.rollouts.query({"rollout_id": {"within": rollout_ids}}))

    async def _rollout(self, rollout_id: str) -> Rollout:
        rollout = await self.collections.rollouts.get({"rollout_id": {"exact": rollout_id}})
        if rollout is None:
            raise UnknownId(f"there is no rollout {rollout_id!r}")
        return rollout

    async def _attempt(self, rollout_id: str, attempt_id: str) -> Attempt:
        attempt = await self.collections.attempts.get(
            {"rollout_id": {"exact": rollout_id}, "attempt_id": {"exact": attempt_id}}
        )
        if attempt is None:
            await self._rollout(rollout_id)
            raise UnknownId(f"rollout {rollout_id!r} has no attempt {attempt_id!r}")
        return attempt

    async def _latest_attempt(self, rollout_id: str) -> Attempt:
        attempt = await self._unlocked_get_latest_attempt(self.collections, rollout_id)
        if attempt is None:
            raise UnknownId(f"rollout {rollout_id!r} has no attempt yet")
        return attempt


def _check_taken(what: str, status: str, wanted: str | Unset) -> None:
    if not isinstance(wanted, Unset) and wanted != status:
        raise Conflict(f"{what} stays {status} and does not become {wanted}")


def check_sequence_ids(sequence_ids: Iterable[int]) -> None:
    """ValueError for a span's sequence id that not every reader of JSON reads as it is."""
    for sequence_id in sequence_ids:
        if not (isinstance(sequence_id, int) and 0 <= sequence_id <= LARGEST_SEQUENCE_ID):
            raise ValueError(f"a span's sequence id is a number from 0 to 2**53, got {sequence_id!r}")


def _idempotency_key(request: EnqueueRolloutRequest) -> str | None:
    key = (request.metadata or {}).get(IDEMPOTENCY_KEY)
    if key is not None and not isinstance(key, str):
        raise ValueError(f"the {IDEMPOTENCY_KEY} must be text, got {key!r}")
    return key


def _as_stored(value: TaskInput) -> str:
    """A task's input as text, the same for what was sent and for what came out of the file."""
    return json.dumps(value, sort_keys=True)
