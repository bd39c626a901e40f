"""Which attempts take too long or have fallen silent: found every second, at a cost that does not grow with the hub."""

import math
import time
from collections.abc import Sequence
from typing import Any

from agentlightning import Attempt, AttemptedRollout, Rollout
from agentlightning.store.collection_based import CollectionBasedLightningStore
from agentlightning.utils.metrics import MetricsBackend

from store.sql.collections import SqlCollections
from store.sql.database import Database
from store.sql.transactions import in_one_transaction

_LONGEST_LOOK_AWAY_SECONDS = 10.0
_LOOK_AWAY_BESIDE_OTHERS_SECONDS = 1.0  # what another hub has handed out is not known here
_OPEN_ATTEMPT = ("preparing", "running")

_UNDER_WAY = (
    "FROM rollouts AS playing JOIN attempts USING (rollout_id) "
    "WHERE playing.status IN ('preparing', 'running') AND sequence_id = "
    "(SELECT MAX(sequence_id) FROM attempts AS other WHERE other.rollout_id = playing.rollout_id)"
)
"""The rollouts that are being played, with their latest attempts."""


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
        await self.collections.attempts.update(list(open_attempts))

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

    async def _scan_for_unhealthy_rollouts(self) -> None:
        if await self._should_scan_for_unhealthy_rollouts():
            await self.close_overdue()

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
