"""What the store needs of a database, whichever it is: statements, transactions, locks."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Self

import sqlalchemy as sa

from store.errors import OneLineError
from store.hub.database.statements import Statement

Rows = Sequence[Sequence[Any]]


class DatabaseUnusable(OneLineError, OSError):
    """The database cannot be opened, is not a hub's, or another hub has it; the message names it and the remedy."""


class DatabaseAway(OneLineError):
    """The database does not answer, or others are in the way: the call may be tried again.

    conflict: it refused, because of others. undone: nothing of the transaction is kept, for certain.
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
    """Connections to a database. Statements take parameters by name; ValueError for values that it cannot hold.

    answers: False while it is known to be away. shared: other hubs may write at the same time.
    """

    answers: bool = True
    shared: bool = False

    def __init__(self) -> None:
        self._transactions: dict[asyncio.Task[Any] | None, _Transaction] = {}

    async def connect(self) -> None:  # noqa: B027  a file is opened when the object is made
        """Connect, and make the tables in an empty database. Raises DatabaseUnusable."""

    @abstractmethod
    async def close(self) -> None:
        """Close the connections."""

    @abstractmethod
    async def rows(self, statement: Statement, **parameters: Any) -> Rows:
        """A query's rows."""

    @abstractmethod
    async def change(self, statement: Statement, **parameters: Any) -> Rows:
        """Run a statement that writes; returns the rows of its RETURNING, if it has one."""

    @abstractmethod
    async def insert(self, table: sa.Table, columns: Sequence[str], rows: Rows) -> None:
        """Add rows."""

    @abstractmethod
    async def insert_new(self, table: sa.Table, columns: Sequence[str], keys: Sequence[str], rows: Rows) -> list[bool]:
        """Add rows, except those whose keys are there or were given before; returns for each whether it was added."""

    @abstractmethod
    async def update(self, table: sa.Table, keys: Sequence[str], columns: Sequence[str], rows: Rows) -> None:
        """Set columns of the rows with given keys; a row is (values of ``columns``, values of ``keys``)."""

    @abstractmethod
    async def lock(self, name: str) -> None:
        """Until the transaction ends, wait for others that hold this name."""

    @abstractmethod
    async def try_lock(self, name: str) -> bool:
        """As ``lock``, but False at once if another holds the name."""

    @abstractmethod
    async def size_bytes(self) -> int:
        """What the database takes on disk."""

    @abstractmethod
    def _session(self, write: bool, snapshot: bool) -> AbstractAsyncContextManager[Any]:
        """A connection in a new transaction, which is committed at the end of the block, or undone by an error."""

    @asynccontextmanager
    async def transaction(self, *, write: bool, snapshot: bool = False) -> AsyncIterator[Self]:
        """All or nothing. One that only reads sees everything as it was at the beginning.

        A transaction inside another one of the same task is a part of it; if the part fails, the whole is undone.
        """
        task = asyncio.current_task()
        outer = self._transactions.get(task)
        if outer is not None:
            if write and not outer.writable:
                raise RuntimeError("a write inside a transaction that was begun for reading")
            try:
                yield self
            except BaseException:
                outer.spoilt = outer.spoilt or write
                raise
            return
        async with self._session(write, snapshot) as connection:
            mine = self._transactions[task] = _Transaction(connection, write)
            try:
                yield self
            finally:
                del self._transactions[task]
            if mine.spoilt:
                raise RuntimeError("a part of this transaction has failed; all of it is undone")

    def in_transaction(self) -> bool:
        """Whether the running task is inside a transaction."""
        return asyncio.current_task() in self._transactions

    async def value(self, statement: Statement, **parameters: Any) -> Any:
        """The first column of the first row; None if there is no row."""
        rows = await self.rows(statement, **parameters)
        return rows[0][0] if rows else None


def places(columns: Sequence[str], names: Collection[str]) -> list[int]:
    """Where the named columns are."""
    return [columns.index(name) for name in names]
