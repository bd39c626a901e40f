"""What the store needs of a database: statements, transactions, locks."""

import asyncio
import functools
import random
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Self, TypeVar, cast

from store.errors import OneLineError
from store.hub.database.statements import Statement

Rows = Sequence[Sequence[Any]]
Method = TypeVar("Method", bound=Callable[..., Awaitable[Any]])
Result = TypeVar("Result")

PATIENCE_SECONDS = 10.0
"""How long a call waits for a database that is away or busy."""


class DatabaseUnusable(OneLineError, OSError):
    """The database cannot be opened, is not a hub's, or another hub uses it; the message names it and the remedy."""


class DatabaseAway(OneLineError):
    """The database does not answer, or others are in the way: the caller may retry.

    conflict: it refused because of others. undone: nothing of the transaction is kept, for certain.
    """

    def __init__(self, message: str, *, conflict: bool = False):
        super().__init__(message)
        self.conflict = conflict
        self.undone = True


@dataclass
class _Transaction:
    """Of a task. spoilt: a part of it failed."""

    connection: Any
    writable: bool
    spoilt: bool = False


class Database(ABC):
    """Connections to a database, for one event loop. ValueError for values that it cannot hold.

    engine: a key of ``DIALECTS``. answers: False while it is known to be away. shared: other hubs may write, too.
    """

    engine: str
    answers: bool = True
    shared: bool = False

    def __init__(self) -> None:
        self._transactions: dict[asyncio.Task[Any] | None, _Transaction] = {}

    @abstractmethod
    async def connect(self) -> None:
        """Connect, and create the tables in an empty database. Raises DatabaseUnusable."""

    @abstractmethod
    async def close(self) -> None: ...

    @abstractmethod
    async def size_bytes(self) -> int:
        """What the database takes on disk."""

    @abstractmethod
    async def try_lock(self, name: str, *, wait: bool = False) -> bool:
        """Hold a name until the transaction ends; False if another transaction holds it. wait: for that one to end."""

    @abstractmethod
    def _session(self, write: bool) -> AbstractAsyncContextManager[Any]:
        """A connection in a new transaction: committed at the end of the block, undone by an error.

        One that only reads sees everything as it was at its beginning.
        """

    @abstractmethod
    async def _run(self, connection: Any, sql: str, values: Sequence[Any]) -> Rows: ...

    @abstractmethod
    async def _run_each(self, connection: Any, sql: str, rows: Rows) -> None: ...

    async def rows(self, statement: Statement, **parameters: Any) -> Rows:
        """The rows that a query finds."""
        sql, values = statement.ready(self.engine, parameters)
        return await self._within(self._run, sql, values, write=False)

    async def value(self, statement: Statement, **parameters: Any) -> Any:
        """The first column of the first row; None if there is no row."""
        rows = await self.rows(statement, **parameters)
        return rows[0][0] if rows else None

    async def change(self, statement: Statement, **parameters: Any) -> Rows:
        """Run a statement that writes; returns the rows of its RETURNING, if it has one."""
        sql, values = statement.ready(self.engine, parameters)
        return await self._within(self._run, sql, values, write=True)

    async def change_each(self, statement: Statement, rows: Rows) -> None:
        """Run a statement that writes once for each row; a row is its parameters in their order."""
        if rows:
            await self._within(self._run_each, statement.compiled(self.engine)[0], rows, write=True)

    async def _within(self, run: Callable[..., Awaitable[Any]], sql: str, values: Any, *, write: bool) -> Any:
        """Run it in the task's transaction, or in one of its own."""
        mine = self._transactions.get(asyncio.current_task())
        if mine is None:

            async def alone() -> Any:
                async with self.transaction(write=write):
                    return await self._within(run, sql, values, write=write)

            return await self.retry(alone)
        if write and not mine.writable:
            raise RuntimeError("a write inside a transaction that was begun for reading")
        return await run(mine.connection, sql, values)

    @asynccontextmanager
    async def transaction(self, *, write: bool) -> AsyncIterator[Self]:
        """All or nothing. Inside another one of the same task it is a part: if the part fails, all is undone."""
        task = asyncio.current_task()
        outer = self._transactions.get(task)
        if outer is not None:
            try:
                yield self
            except BaseException:
                outer.spoilt = outer.spoilt or write
                raise
            return
        async with self._session(write) as connection:
            mine = self._transactions[task] = _Transaction(connection, write)
            try:
                yield self
            finally:
                del self._transactions[task]
            if mine.spoilt:
                raise RuntimeError("a part of this transaction has failed; all of it is undone")

    async def retry(self, call: Callable[[], Awaitable[Result]]) -> Result:
        """Make a call that is one transaction until the database answers. Raises DatabaseAway after PATIENCE_SECONDS,
        or at once inside another transaction and where the call may have been committed.
        """
        is_part = asyncio.current_task() in self._transactions
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                return await call()
            except DatabaseAway as error:
                if is_part or not error.undone or time.monotonic() > deadline:
                    raise
            await asyncio.sleep(random.uniform(0.01, 0.1))


def in_one_transaction(method: Method) -> Method:
    """All that a call of the store changes is kept, or nothing of it; the stock methods commit bit by bit.

    A call that the database undid because of others, or because it went away, is retried for some seconds.
    """

    @functools.wraps(method)
    async def in_transaction(self: Any, *arguments: Any, **options: Any) -> Any:
        async with self.collections.database.transaction(write=True):
            return await method(self, *arguments, **options)

    return cast(Method, retried(in_transaction))


def retried(method: Method) -> Method:
    """A method of the store that only reads, or is one transaction: see ``Database.retry``."""

    @functools.wraps(method)
    async def wrapper(self: Any, *arguments: Any, **options: Any) -> Any:
        database: Database = self.collections.database
        return await database.retry(lambda: method(self, *arguments, **options))

    return cast(Method, wrapper)


def alone_with_its_rollout(method: Method) -> Method:
    """One transaction, in which nobody else changes the rollout of that id, its attempts or its spans."""

    @functools.wraps(method)
    async def wrapper(self: Any, rollout_id: str, *arguments: Any, **options: Any) -> Any:
        await self.collections.lock_rollouts([rollout_id])
        return await method(self, rollout_id, *arguments, **options)

    return cast(Method, in_one_transaction(wrapper))
