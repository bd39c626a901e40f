"""The interface of a database: statements, transactions, locks."""

import asyncio
import functools
import random
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeVar, cast

from store.errors import OneLineError
from store.hub.database.statements import Statement

Rows = Sequence[Sequence[Any]]
Method = TypeVar("Method", bound=Callable[..., Awaitable[Any]])
Result = TypeVar("Result")

RETRY_SECONDS = 10.0
"""How long a call is retried while the database is unavailable or busy."""

_FIRST_DELAY, _LONGEST_DELAY = 0.02, 0.5


class DatabaseUnusable(OneLineError, OSError):
    """The database cannot be opened, is not a hub's, or is locked by another hub; the message has the remedy."""


class DatabaseUnavailable(OneLineError):
    """The database does not respond, or a transaction conflicts with others: the caller may retry.

    undone: the transaction is certainly rolled back.
    """

    def __init__(self, message: str, *, undone: bool = True):
        super().__init__(message)
        self.undone = undone


class Database(ABC):
    """Connections to a database, for one event loop. ValueError for values that it cannot store.

    engine: a key of ``DIALECTS``. name: its address, without a password. answers: False during a known outage.
    shared: other hubs may write, too.
    """

    engine: str
    name: str
    answers: bool = True
    shared: bool = False

    def __init__(self) -> None:
        self._connections: dict[asyncio.Task[Any] | None, Any] = {}  # of the transactions of tasks

    @abstractmethod
    async def connect(self) -> None:
        """Connect, and create the tables in an empty database. Raises DatabaseUnusable."""

    @abstractmethod
    async def close(self) -> None: ...

    @abstractmethod
    async def size_bytes(self) -> int:
        """Size on disk."""

    @abstractmethod
    async def try_lock(self, name: str, *, wait: bool = False) -> bool:
        """Lock a name until the transaction ends; False if another transaction holds it. wait: until that one ends."""

    @abstractmethod
    def _session(self, write: bool) -> AbstractAsyncContextManager[Any]:
        """A connection in a new transaction: committed at the end of the block, rolled back on an error.

        A reading transaction is a snapshot.
        """

    @abstractmethod
    async def _run(self, connection: Any, sql: str, values: Sequence[Any]) -> Rows: ...

    @abstractmethod
    async def _run_each(self, connection: Any, sql: str, rows: Rows) -> None: ...

    async def rows(self, statement: Statement, **parameters: Any) -> Rows:
        return await self._within(False, self._run, *statement.ready(self.engine, parameters))

    async def value(self, statement: Statement, **parameters: Any) -> Any:
        """The first column of the first row; None if there is no row."""
        rows = await self.rows(statement, **parameters)
        return rows[0][0] if rows else None

    async def change(self, statement: Statement, **parameters: Any) -> Rows:
        """Run a statement that writes; returns the rows of its RETURNING, if it has one."""
        return await self._within(True, self._run, *statement.ready(self.engine, parameters))

    async def change_each(self, statement: Statement, rows: Rows) -> None:
        """Run a statement that writes once for each row; a row is its parameters in their order."""
        if rows:
            await self._within(True, self._run_each, statement.compiled(self.engine)[0], rows)

    async def _within(self, write: bool, run: Callable[..., Awaitable[Any]], sql: str, values: Any) -> Any:
        """Run it in the task's transaction, or in a new one."""
        connection = self._connections.get(asyncio.current_task())
        if connection is not None:
            return await run(connection, sql, values)

        async def alone() -> Any:
            async with self._session(write) as connection:
                return await run(connection, sql, values)

        return await self.retry(alone)

    @asynccontextmanager
    async def transaction(self, *, write: bool) -> AsyncIterator[None]:
        """A transaction; part of the outer one if the task is in one already."""
        task = asyncio.current_task()
        if task in self._connections:
            yield
            return
        async with self._session(write) as connection:
            self._connections[task] = connection
            try:
                yield
            finally:
                del self._connections[task]

    async def retry(self, call: Callable[[], Awaitable[Result]]) -> Result:
        """Retry a call that is one transaction while the database is unavailable.

        Raises DatabaseUnavailable after RETRY_SECONDS; at once inside another transaction, and where the call may have
        been committed.
        """
        is_part = asyncio.current_task() in self._connections
        deadline, delay = time.monotonic() + RETRY_SECONDS, _FIRST_DELAY
        while True:
            try:
                return await call()
            except DatabaseUnavailable as error:
                if is_part or not error.undone or time.monotonic() > deadline:
                    raise
            await asyncio.sleep(random.uniform(0, delay))
            delay = min(2 * delay, _LONGEST_DELAY)


def in_one_transaction(method: Method) -> Method:
    """Run a method of the store as one transaction, with retries; the stock methods commit in several parts."""

    @functools.wraps(method)
    async def in_transaction(self: Any, *arguments: Any, **options: Any) -> Any:
        async with self.collections.database.transaction(write=True):
            return await method(self, *arguments, **options)

    return retried(cast(Method, in_transaction))


def retried(method: Method) -> Method:
    """Retry a method of the store that only reads, or is one transaction: see ``Database.retry``."""

    @functools.wraps(method)
    async def wrapper(self: Any, *arguments: Any, **options: Any) -> Any:
        return await self.collections.database.retry(lambda: method(self, *arguments, **options))

    return cast(Method, wrapper)


def in_rollout_transaction(method: Method) -> Method:
    """Run a method as one transaction that locks the rollout of its first argument."""

    @functools.wraps(method)
    async def wrapper(self: Any, rollout_id: str, *arguments: Any, **options: Any) -> Any:
        await self.collections.lock_rollouts([rollout_id])
        return await method(self, rollout_id, *arguments, **options)

    return in_one_transaction(cast(Method, wrapper))
