"""Which games have finished since one last looked, at a cost that does not grow with the games that are still open."""

from collections.abc import Collection

from store.client import StoreClient
from store.protocol import Rollout

_CLOSED = ("succeeded", "failed", "cancelled")


class FinishedRollouts:
    """Looks for finished games on behalf of one who waits for some.

    Our hub keeps the order in which games were closed, and answers what came since a mark. A stock hub is asked for all
    of the games; so is ours when the mark is not its own, as after a change of its database, and for games that were
    not asked for before, which may have been closed earlier.
    """

    def __init__(self, client: StoreClient):
        self._client = client
        self._mark: str | None = None
        self._watched: set[str] = set()
        self._closed: set[str] = set()

    async def poll(self, rollout_ids: Collection[str]) -> list[Rollout]:
        """Those of the games that are closed, whether that was told before or not; in no particular order."""
        wanted = set(rollout_ids)
        if not wanted:
            return []
        answer = None if self._mark is None else await self._client.finished_since(self._mark)
        unknown = wanted - self._watched
        if answer is None:
            self._closed.clear()
            unknown = wanted
            fresh = await self._client.finished_since(None)  # before the games are looked at: none falls in between
            self._mark = None if fresh is None else fresh[1]
        else:
            closed, self._mark = answer
            self._closed.update(closed)
        self._watched = wanted
        self._closed &= wanted
        to_read = unknown | self._closed
        if not to_read:
            return []
        found = await self._client.query_rollouts(rollout_id_in=sorted(to_read))
        closed_now = [rollout for rollout in found if rollout.status in _CLOSED]
        self._closed.update(rollout.rollout_id for rollout in closed_now)
        return closed_now
