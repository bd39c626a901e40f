"""The order in which rollouts close, and waits for them: one task polls for all waiters."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeAlias

import sqlalchemy as sa

from store.hub.database import schema
from store.hub.database.database import Database
from store.hub.database.statements import Statement

_POLL_SECONDS = 0.05
_BATCH = 10_000
_completions, _marks = schema.completions.c, schema.marks
_is_mark = _marks.c.key == sa.literal_column("'completions'")
_LAST = Statement(sa.select(_marks.c.value, sa.exists().where(_completions.number.is_(None))).where(_is_mark))
_SET_LAST = Statement(sa.update(_marks).where(_is_mark).values(value=sa.bindparam("last")))
_WITHOUT = Statement(
    sa.select(_completions.position).where(_completions.number.is_(None)).order_by(_completions.position)
)
_NUMBER = Statement(
    sa.update(schema.completions)
    .where(_completions.position == sa.bindparam("at"))
    .values(number=sa.bindparam("given", type_=schema.INTEGER))
)
_AFTER = Statement(
    sa.select(_completions.number, _completions.rollout_id)
    .where(_completions.number > sa.bindparam("mark"))
    .order_by(_completions.number)
    .limit(sa.bindparam("most", type_=sa.BigInteger()))
)
Closings: TypeAlias = "asyncio.Future[tuple[set[str], Closings]]"
"""The rollouts that close next, and the closings after those."""


class Completions:
    """Rollouts that have closed, by their number in the order of completion."""

    def __init__(self, database: Database):
        self._database = database
        self._watchers = 0
        self._poller: asyncio.Task[None] | None = None
        self._next: Closings

    async def last(self) -> int:
        """The highest number, after numbering every closed rollout."""
        ((number, is_incomplete),) = await self._database.rows(_LAST)
        return await self._database.retry(self._number_all) if is_incomplete else int(number)

    async def _number_all(self) -> int:
        async with self._database.transaction(write=True):
            await self._database.try_lock("completions", wait=True)
            ((number, _),) = await self._database.rows(_LAST)
            rows = enumerate(await self._database.rows(_WITHOUT), start=int(number) + 1)
            numbered = [(given, position) for given, (position,) in rows]
            await self._database.change_each(_NUMBER, numbered)
            last = int(number) + len(numbered)
            await self._database.change(_SET_LAST, last=str(last))
        return last

    async def after(self, number: int) -> list[tuple[int, str]]:
        """(number, rollout id) of those that closed after that number, in order."""
        return list(map(tuple, await self._database.rows(_AFTER, mark=number, most=_BATCH)))

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[Closings]:
        """The closings from now on; they fail if the database does."""
        self._watchers += 1
        try:
            if self._is_idle():
                seen = await self.last()
                if self._is_idle():  # another watcher may have started it meanwhile
                    self._next = asyncio.get_running_loop().create_future()
                    self._poller = asyncio.create_task(self._poll(seen))
            yield self._next
        finally:
            self._watchers -= 1

    def _is_idle(self) -> bool:
        return self._poller is None or self._poller.done()

    async def _poll(self, seen: int) -> None:
        try:
            while self._watchers:
                await asyncio.sleep(_POLL_SECONDS)
                last = await self.last()
                while seen < last:
                    closed = await self.after(seen)
                    seen = closed[-1][0] if closed else last
                    closings, self._next = self._next, asyncio.get_running_loop().create_future()
                    closings.set_result(({rollout_id for _, rollout_id in closed}, self._next))
        except Exception as error:
            self._next.set_exception(error)
            self._next.exception()  # marks it as retrieved, since no waiter may be left
