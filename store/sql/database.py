"""What the store asks of an engine: statements, transactions, and the few things that each engine says its own way."""

import functools
import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Self

from store.errors import OneLineError
from store.sql.dialects import Dialect

if TYPE_CHECKING:
    from store.sql.tables import Table


class DatabaseUnusable(OneLineError, OSError):
    """The database cannot be opened, is not a hub's, or another hub has it; the message names it and the remedy."""


class DatabaseAway(OneLineError):
    """The database does not answer, or others are in the way: what was asked may be tried again.

    conflict: it has refused, because of others. undone: nothing of the transaction is kept, for certain.
    """

    def __init__(self, message: str, *, conflict: bool = False):
        super().__init__(message)
        self.conflict = conflict
        self.undone = True


class Database(ABC):
    """One engine's connections. Statements have ``?`` for their parameters, whichever the engine.

    dialect: what the engine says its own way. answers: False while it is known to be away.
    """

    dialect: Dialect
    answers: bool = True

    @abstractmethod
    def create(self, *statements: str) -> None:
        """Statements that make what is not there, run now or when the database is connected to."""

    async def connect(self) -> None:  # noqa: B027  nothing where there is nothing to connect to
        """Make what is not there, where that was not done before. Raises DatabaseUnusable."""

    @abstractmethod
    async def rows(self, sql: str, parameters: Sequence[Any] = ()) -> Sequence[Sequence[Any]]:
        """A query's rows. ValueError for what the engine cannot hold."""

    @abstractmethod
    async def change(self, sql: str, parameters: Sequence[Any] = ()) -> int:
        """Run a statement; returns the number of rows that it has changed. ValueError as in ``rows``."""

    @abstractmethod
    async def returned(self, sql: str, parameters: Sequence[Any] = ()) -> Sequence[Sequence[Any]]:
        """Run a statement that changes something and has RETURNING; returns its rows. ValueError as in ``rows``."""

    @abstractmethod
    async def append(self, table: str, column: str, values: Sequence[str]) -> None:
        """Put texts into a table with one column besides its position, in their order."""

    @abstractmethod
    async def put(self, table: str, items: Sequence[tuple[str, Any]]) -> None:
        """Put values of text keys into a table of keys and values, in the place of what was there."""

    @abstractmethod
    async def insert_new(self, table: "Table", rows: Sequence[Sequence[Any]]) -> list[bool]:
        """Put rows in; says of each whether it is new. One whose key is there, or given before, is left out."""

    @abstractmethod
    async def replace(self, table: "Table", rows: Sequence[Sequence[Any]], changed: Collection[str]) -> int:
        """Put rows in the place of those with their keys; returns how many of them were there.

        changed: the columns in which they may differ.
        """

    @abstractmethod
    def transaction(self, *, write: bool, snapshot: bool = False) -> AbstractAsyncContextManager[Self]:
        """All or nothing: what happened inside is undone when an error leaves the block.

        A block for reading sees everything as it was at the beginning. A transaction within one of the same task is
        a part of it. snapshot: one that writes does, too; where many write, DatabaseAway if another was first.
        """

    @abstractmethod
    def in_transaction(self) -> bool:
        """Whether the running task is inside of a transaction."""

    async def lock(self, name: str) -> None:  # noqa: B027
        """Until the transaction ends, wait for others that hold this name; where one may write at a time, nothing."""

    async def try_lock(self, name: str) -> bool:
        """As ``lock``, but False at once if another holds the name."""
        return True

    async def tidy(self) -> None:  # noqa: B027
        """What the engine wants to have done now and then."""

    @abstractmethod
    async def size_bytes(self) -> int:
        """What the database takes on disk."""

    @abstractmethod
    async def close(self) -> None:
        """Let go of the connections."""

    async def value(self, sql: str, parameters: Sequence[Any] = ()) -> Any:
        """The first column of the first row; None if there is no row."""
        rows = await self.rows(sql, parameters)
        return rows[0][0] if rows else None


@functools.lru_cache(maxsize=4096)
def numbered(sql: str) -> str:
    """A statement with $1, $2 … for its question marks, of which it has no others."""
    numbers = iter(range(1, 10_000))
    return re.sub(r"\?", lambda _: f"${next(numbers)}", sql)
