"""Calls that wait for rollouts to close: one task polls the database for all of them."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from store.hub.database.collections import SqlCollections

_POLL_SECONDS = 0.05
_BATCH = 10_000


@dataclass(eq=False)
class Waiter:
    """One call. open: the rollouts that it still waits for; done: resolved when there are none, or with an error."""

    open: set[str]
    done: asyncio.Future[None]

    def remove(self, rollout_ids: Iterable[str]) -> None:
        """These rollouts need not be waited for any longer."""
        self.open.difference_update(rollout_ids)
        if not self.open:
            self.end(None)

    def end(self, error: Exception | None) -> None:
        """End the wait. The poller may run in the event loop of another thread."""
        self.done.get_loop().call_soon_threadsafe(_resolve, self.done, error)


class Waits:
    """All waiting calls of a store, and the task that polls while there are any."""

    def __init__(self, collections: SqlCollections):
        self._collections = collections
        self._waiters: set[Waiter] = set()
        self._poller: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def waiter(self, rollout_ids: Iterable[str]) -> AsyncIterator[Waiter]:
        """A waiter that notices every rollout that closes inside the block."""
        waiter = Waiter(set(rollout_ids), asyncio.get_running_loop().create_future())
        self._waiters.add(waiter)
        try:
            if self._is_idle():
                seen = await self._collections.last_completion()
                if self._is_idle():  # another waiter may have started it meanwhile
                    self._poller = asyncio.create_task(self._poll(seen))
            yield waiter
        finally:
            self._waiters.discard(waiter)

    def _is_idle(self) -> bool:
        return self._poller is None or self._poller.done()

    async def _poll(self, seen: int) -> None:
        try:
            while self._waiters:
                await asyncio.sleep(_POLL_SECONDS)
                last = await self._collections.last_completion()
                while seen < last:
                    closed = await self._collections.completed_after(seen, _BATCH)
                    seen = closed[-1][0] if closed else last
                    for waiter in list(self._waiters):
                        waiter.remove(rollout_id for _, rollout_id in closed)
        except Exception as error:
            for waiter in list(self._waiters):
                waiter.end(error)


def _resolve(future: asyncio.Future[None], error: Exception | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
