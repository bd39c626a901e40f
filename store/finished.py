"""Polls for finished rollouts, at a cost that does not grow with the number of open ones."""

from collections.abc import Collection

from store.client import StoreClient
from store.protocol import CLOSED, Rollout


class FinishedRollouts:
    """Polls a hub for finished rollouts.

    Our hub stores the order in which rollouts close, and returns those after a mark. Every rollout is queried at a
    stock hub, and at ours if the mark is of another database. A new rollout is queried once, since it may have closed
    before.
    """

    def __init__(self, client: StoreClient):
        self._client = client
        self._mark: str | None = None
        self._watched: set[str] = set()
        self._closed: set[str] = set()

    async def poll(self, rollout_ids: Collection[str]) -> list[Rollout]:
        """The closed ones of these rollouts, also those returned before; in no particular order."""
        wanted = set(rollout_ids)
        if not wanted:
            return []
        answer = None if self._mark is None else await self._client.finished_since(self._mark)
        unknown = wanted - self._watched
        if answer is None:
            self._closed.clear()
            self._watched.clear()
            unknown = wanted
            fresh = await self._client.finished_since(None)  # before the query, so that no rollout is missed in between
            self._mark = None if fresh is None else fresh[1]
        else:
            closed, self._mark = answer
            self._closed.update(closed)
        self._watched &= wanted
        self._closed &= wanted
        to_read = unknown | self._closed
        found = await self._client.query_rollouts(rollout_id_in=sorted(to_read)) if to_read else []
        self._watched = wanted  # after the query: if it fails, the next one reads them again
        closed_now = [rollout for rollout in found if rollout.status in CLOSED]
        self._closed.update(rollout.rollout_id for rollout in closed_now)
        return closed_now
