"""The watchdog: closes attempts after their timeouts, at a cost that does not grow with the database."""

import logging
import math
import time
from collections.abc import Sequence

import sqlalchemy as sa
from agentlightning import Attempt, AttemptedRollout, Rollout
from agentlightning.store.collection_based import CollectionBasedLightningStore
from agentlightning.utils.metrics import MetricsBackend

from store.hub.database import schema
from store.hub.database.collections import SqlCollections
from store.hub.database.database import Database, in_one_transaction
from store.hub.database.statements import Statement, among, greater, smaller

logger = logging.getLogger(__name__)

_LONGEST_PAUSE_SECONDS = 10.0
_PAUSE_AMONG_HUBS_SECONDS = 1.0  # attempts of other hubs are not known here
_CLOCK_STEP_SECONDS = 5.0
_OPEN_ATTEMPT = ("preparing", "running")

_rollouts, _attempts, _other = schema.rollouts.c, schema.attempts.c, schema.attempts.alias("other").c
_last_number = sa.select(sa.func.max(_other.sequence_id)).where(_other.rollout_id == _rollouts.rollout_id)


def _is_open(status: sa.ColumnElement[str]) -> sa.ColumnElement[bool]:
    return sa.or_(*(status == sa.literal_column(f"'{each}'") for each in _OPEN_ATTEMPT))


_under_way = sa.and_(
    _is_open(_rollouts.status),
    _attempts.rollout_id == _rollouts.rollout_id,
    _attempts.sequence_id == _last_number.scalar_subquery(),
    # A client may set the status of a rollout whose attempt has ended.
    _is_open(_attempts.status),
)
"""Running rollouts with their latest attempts, where these are open."""


def _later(since: sa.ColumnElement[float], seconds: sa.ColumnElement[float]) -> sa.ColumnElement[float]:
    """The end of a timeout; never without one, and for numbers whose sum PostgreSQL rejects."""
    end = schema.END_OF_TIME
    return sa.func.coalesce(smaller(since, end) + smaller(seconds, end), end)


_heard = sa.func.coalesce(_attempts.last_heartbeat_time, _attempts.start_time)
_heard_here = greater(_heard, sa.bindparam("launched", type_=sa.Double()))
_started = greater(_attempts.start_time, sa.bindparam("set_forward", type_=sa.Double()))
_due = smaller(_later(_started, _rollouts.timeout_seconds), _later(_heard_here, _rollouts.unresponsive_seconds))
"""Deadline of a rollout without further heartbeats."""

_overdue = sa.select(_rollouts.document).where(_under_way, _due < sa.bindparam("now", type_=sa.Double()))
_OVERDUE = Statement(_overdue)
_OVERDUE_AMONG = Statement(_overdue.where(among(_rollouts.rollout_id, sa.bindparam("rollout_ids"))))
_FIRST_DUE = Statement(sa.select(sa.func.min(_due)).where(_under_way))


def _clock_offset() -> float:
    """The time of day less a clock that nobody sets, in seconds."""
    return time.time() - time.monotonic()


class WatchedStore(CollectionBasedLightningStore[SqlCollections]):
    """The stock store, with a watchdog that scans only when an attempt may be overdue.

    scan_debounce_seconds: see ``SqlLightningStore``.
    """

    def __init__(
        self, database: Database, *, tracker: MetricsBackend | None = None, scan_debounce_seconds: float = math.inf
    ):
        collections = SqlCollections(database, tracker)
        super().__init__(collections, tracker=tracker, scan_debounce_seconds=scan_debounce_seconds)
        if math.isinf(scan_debounce_seconds):  # else the first call of all scans
            self._last_scan_entrance_time = self._launch_time
        self._next_scan_at = 0.0
        self._clock_offset = _clock_offset()
        self._set_forward_time = 0.0

    def reset_heartbeat_timers(self) -> None:
        """Restart the heartbeat timeouts of all attempts, which may have been unable to reach this hub."""
        self._launch_time = time.time()

    @in_one_transaction
    async def keep_alive(self, attempts: Sequence[tuple[str, str]]) -> None:
        """A heartbeat of attempts, each (rollout id, attempt id). Closed attempts stay closed.

        An unresponsive one whose rollout still waits for another runner continues.
        """
        rollout_ids, attempt_ids = [rollout for rollout, _ in attempts], {attempt for _, attempt in attempts}
        await self.collections.lock_rollouts(rollout_ids)
        found = await self.collections.attempts.query(
            {"rollout_id": {"within": rollout_ids}, "status": {"within": (*_OPEN_ATTEMPT, "unresponsive")}}
        )
        alive, now = [], time.time()
        for attempt in found:
            if attempt.attempt_id not in attempt_ids:
                continue
            if attempt.status != "unresponsive":
                attempt.last_heartbeat_time = now
                alive.append(attempt)
            elif update := await self._on_attempt_heartbeat(attempt.rollout_id, attempt.attempt_id):
                await self._post_update_rollout([update])
        await self.collections.attempts.replace(alive)

    async def close_overdue(self) -> None:
        """Close overdue attempts; their rollouts wait for a retry, or fail.

        Scans only when a deadline has passed, and every ten seconds. One of several hubs scans at a time, and skips
        rollouts that another hub has locked.
        """
        if not 0 < self._next_scan_at - time.time() <= _LONGEST_PAUSE_SECONDS:  # due, or the clock was set back
            await self._close_overdue()

    @in_one_transaction
    async def _close_overdue(self) -> None:
        offset = _clock_offset()
        step, self._clock_offset = offset - self._clock_offset, offset
        if abs(step) > _CLOCK_STEP_SECONDS:  # or the machine was suspended
            logger.warning("the clock was set by %+.0f s: timeouts start again", step)
            self.reset_heartbeat_timers()
            # Set back, it does not make attempts older; a later time of an earlier step would postpone all timeouts.
            self._set_forward_time = self._launch_time if step > 0 else min(self._set_forward_time, self._launch_time)
        now, database = time.time(), self.collections.database
        if not await database.try_lock("watchdog"):
            return
        rollouts, attempts = await self._find_and_update_unhealthy_rollouts()
        await self._post_update_rollout(rollouts)
        await self._sync_workers_with_attempts(attempts)
        first_due = await database.value(_FIRST_DUE, **self._timers())
        pause = _PAUSE_AMONG_HUBS_SECONDS if database.shared else _LONGEST_PAUSE_SECONDS
        self._next_scan_at = min(math.inf if first_due is None else first_due, now + pause)

    def _timers(self) -> dict[str, float]:
        """Earliest starts of heartbeat timeouts and of timeouts."""
        return {"launched": self._launch_time, "set_forward": self._set_forward_time}

    def _note_deadline(self, rollout: Rollout, attempt: Attempt) -> None:
        """Record the deadline of an attempt that is new or has sent a heartbeat."""
        if attempt.status not in _OPEN_ATTEMPT:
            return
        heard = max(attempt.last_heartbeat_time or attempt.start_time, self._launch_time)
        for since, timeout in (
            (max(attempt.start_time, self._set_forward_time), rollout.config.timeout_seconds),
            (heard, rollout.config.unresponsive_seconds),
        ):
            if timeout is not None:
                self._next_scan_at = min(self._next_scan_at, since + timeout)

    async def _scan_for_unhealthy_rollouts(self) -> None:
        if await self._should_scan_for_unhealthy_rollouts():
            await self.close_overdue()

    async def _unlocked_get_running_rollouts(self, collections: SqlCollections) -> list[AttemptedRollout]:
        """Only the overdue ones. Heartbeat timeouts start with this hub, since runners retry through an outage."""
        times = {**self._timers(), "now": time.time()}
        overdue = await collections.rollouts.select(_OVERDUE, times)
        if overdue and collections.database.shared:
            locked = await collections.lock_rollouts((rollout.rollout_id for rollout in overdue), wait=False)
            overdue = await collections.rollouts.select(_OVERDUE_AMONG, {**times, "rollout_ids": locked})
        attempted = await self._unlocked_many_rollouts_to_attempted_rollouts(collections, overdue)
        return [one for one in attempted if isinstance(one, AttemptedRollout)]
