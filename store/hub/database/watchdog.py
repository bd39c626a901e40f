"""Which attempts take too long or have fallen silent: found every second, at a cost that does not grow with the hub."""

import math
import time
from collections.abc import Sequence

import sqlalchemy as sa
from agentlightning import Attempt, AttemptedRollout, Rollout
from agentlightning.store.collection_based import CollectionBasedLightningStore
from agentlightning.utils.metrics import MetricsBackend

from store.hub.database import schema
from store.hub.database.collections import SqlCollections
from store.hub.database.database import Database
from store.hub.database.statements import Statement, among, greater, smaller
from store.hub.database.transactions import in_one_transaction

_LONGEST_LOOK_AWAY_SECONDS = 10.0
_LOOK_AWAY_BESIDE_OTHERS_SECONDS = 1.0  # what another hub has handed out is not known here
_OPEN_ATTEMPT = ("preparing", "running")

_rollouts, _attempts, _other = schema.rollouts.c, schema.attempts.c, schema.attempts.alias("other").c
_is_latest = _attempts.sequence_id == (
    sa.select(sa.func.max(_other.sequence_id)).where(_other.rollout_id == _rollouts.rollout_id).scalar_subquery()
)
_under_way = sa.and_(
    sa.or_(*(_rollouts.status == sa.literal_column(f"'{status}'") for status in _OPEN_ATTEMPT)),
    _attempts.rollout_id == _rollouts.rollout_id,
    _is_latest,
)
"""The rollouts that are being played, with their latest attempts."""

_never = sa.literal_column("1e300")
_heard = sa.func.coalesce(_attempts.last_heartbeat_time, _attempts.start_time)
_due = smaller(
    sa.func.coalesce(_attempts.start_time + _rollouts.timeout_seconds, _never),
    sa.func.coalesce(
        greater(_heard, sa.bindparam("launched", type_=sa.Double())) + _rollouts.unresponsive_seconds, _never
    ),
)
"""When a rollout is overdue, if nothing more is heard of it."""

_overdue = sa.select(_rollouts.document).where(_under_way, _due < sa.bindparam("now", type_=sa.Double()))
_OVERDUE = Statement(_overdue)
_OVERDUE_AMONG = Statement(_overdue.where(among(_rollouts.rollout_id, sa.bindparam("rollout_ids"))))
_FIRST_DUE = Statement(sa.select(sa.func.min(_due)).where(_under_way))


class WatchedStore(CollectionBasedLightningStore[SqlCollections]):
    """The stock store, with a watchdog that looks only at what may be overdue.

    scan_debounce_seconds: see ``SqlLightningStore``.
    """

    def __init__(
        self, database: Database, *, tracker: MetricsBackend | None = None, scan_debounce_seconds: float = 1.0
    ):
        super().__init__(
            SqlCollections(database, tracker), tracker=tracker, scan_debounce_seconds=scan_debounce_seconds
        )
        self._none_overdue_before = 0.0

    def begin_silence_anew(self) -> None:
        """What runners could not say until now, since the database was away, does not count as their silence."""
        self._launch_time = time.time()

    @in_one_transaction
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
        await self.collections.attempts.replace(list(open_attempts))

    async def add_up_counts(self) -> None:
        """Keep the table of counts small; called every second by whoever runs the store."""
        if await self.collections.has_many_counts():
            await self._add_up_counts()

    @in_one_transaction
    async def _add_up_counts(self) -> None:
        if await self.collections.database.try_lock("counts"):
            await self.collections.add_up_counts()

    async def close_overdue(self) -> None:
        """Close the attempts that have taken too long or fallen silent; their games wait for another try, or fail.

        The games under way are looked at only when one of them may be overdue, and every ten seconds. Of several hubs
        one does it at a time, and leaves out what another is changing at this moment.
        """
        if time.time() >= self._none_overdue_before:
            await self._close_overdue()

    @in_one_transaction
    async def _close_overdue(self) -> None:
        now = time.time()
        if not await self.collections.database.try_lock("watchdog"):
            return
        rollouts, attempts = await self._find_and_update_unhealthy_rollouts()
        await self._post_update_rollout(rollouts)
        await self._sync_workers_with_attempts(attempts)
        first_due = await self._first_due()
        away = _LOOK_AWAY_BESIDE_OTHERS_SECONDS if self.collections.database.shared else _LONGEST_LOOK_AWAY_SECONDS
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

    async def _scan_for_unhealthy_rollouts(self) -> None:
        if await self._should_scan_for_unhealthy_rollouts():
            await self.close_overdue()

    async def _unlocked_get_running_rollouts(self, collections: SqlCollections) -> list[AttemptedRollout]:
        """Only the overdue ones, since this is called every second.

        The time before this hub started does not count as silence: runners wait for a hub that is away.
        """
        times = {"launched": self._launch_time, "now": time.time()}
        overdue = await collections.rollouts.select(_OVERDUE, times)
        if overdue and collections.database.shared:
            locked = await collections.lock_rollouts((rollout.rollout_id for rollout in overdue), wait=False)
            overdue = await collections.rollouts.select(_OVERDUE_AMONG, {**times, "rollout_ids": locked})
        return await self._unlocked_many_rollouts_to_attempted_rollouts(collections, overdue)

    async def _first_due(self) -> float:
        """When the first of the rollouts under way will be overdue, if nothing is heard of it; infinity without one."""
        due = await self.collections.database.value(_FIRST_DUE, launched=self._launch_time)
        return math.inf if due is None else due
