"""One SQLite file: opening it, transactions that nest, and the lock that keeps a second hub out.

Statements run in the caller's thread: they take microseconds, and a hand-over to another thread costs more
than they do. A transaction belongs to the asyncio task that began it; others wait for it, in any thread.
"""

import asyncio
import fcntl
import itertools
import operator
import os
import sqlite3
import time
from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import aiologic

from store.sql.database import Database, DatabaseUnusable
from store.sql.dialects import SqliteDialect
from store.sql.tables import Table

APPLICATION_ID = 0x57455257
"""SQLite's ``application_id`` of a hub's file: "WERW"."""

FORMAT_VERSION = 1
"""SQLite's ``user_version`` of a hub's file; a newer one is refused."""

_BUSY_SECONDS = 10.0
_LONGEST_BUSY_POLL_SECONDS = 0.05
_BLOCKING_SECONDS = 0.005
"""How long a statement may wait for another process's lock in this thread, where nothing else goes on."""

_CACHE_KIBIBYTES = 32 * 1024
_LOG_SIZE_LIMIT_BYTES = 64 * 1024 * 1024


def open_connection(path: Path, *, fsync: bool = False) -> sqlite3.Connection:
    """A connection to a hub's file, which is made if it is not there, readable by its owner only.

    fsync: also survive a power cut, at the price of a disk flush for each request. Without it, a process that is
    killed loses nothing, and a machine that loses power loses the last seconds but never the file.
    Raises DatabaseUnusable.
    """
    try:
        make_private_folder(path.parent)
        if not path.exists():
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=_BUSY_SECONDS)
    except (OSError, sqlite3.Error) as error:
        raise DatabaseUnusable(f"cannot open the database {path}: {_reason(error)}") from error
    try:
        _configure(connection, fsync)
    except (ValueError, sqlite3.Error) as error:
        connection.close()
        raise DatabaseUnusable(f"cannot use the database {path}: {_reason(error)}") from error
    return connection


def make_private_folder(folder: Path) -> None:
    """Make a folder that only its owner can look into, and those above it, if it is not there."""
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)


def _configure(connection: sqlite3.Connection, fsync: bool) -> None:
    def pragma(text: str) -> Any:
        row = connection.execute(f"PRAGMA {text}").fetchone()
        return None if row is None else row[0]

    is_new = pragma("application_id") == 0 and not connection.execute("SELECT 1 FROM sqlite_master").fetchone()
    if is_new:
        pragma("auto_vacuum=INCREMENTAL")  # only before the first table; lets `archive` give space back bit by bit
    elif pragma("application_id") != APPLICATION_ID:
        raise ValueError("it holds something else than a hub's games")
    elif pragma("user_version") > FORMAT_VERSION:
        raise ValueError(f"a newer version of this program wrote it (format {pragma('user_version')})")
    if pragma("journal_mode=WAL") != "wal":
        raise ValueError("its file system does not support a write-ahead log; choose a local disk")
    pragma(f"synchronous={'FULL' if fsync else 'NORMAL'}")
    pragma(f"cache_size=-{_CACHE_KIBIBYTES}")
    pragma(f"journal_size_limit={_LOG_SIZE_LIMIT_BYTES}")
    pragma("temp_store=MEMORY")
    if is_new:
        pragma(f"application_id={APPLICATION_ID}")
        pragma(f"user_version={FORMAT_VERSION}")


def _reason(error: Exception) -> str:
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)


class _Undone(Exception):
    """Ends a part of a transaction without a trace of it."""


class SqliteDatabase(Database):
    """A file. ``close`` leaves a single one behind.

    fsync: see ``open_connection``.
    """

    def __init__(self, path: Path, *, fsync: bool = False):
        self.path = path
        self.dialect = SqliteDialect()
        self._connection = open_connection(path, fsync=fsync)
        self._block_for(_BLOCKING_SECONDS)
        self._lock = aiologic.Lock()
        self._owner: asyncio.Task[Any] | None = None
        self._writable = False
        self._depth = 0

    def create(self, *statements: str) -> None:
        """Run statements that make tables, outside of any transaction. Raises DatabaseUnusable."""
        self._block_for(_BUSY_SECONDS)
        try:
            for statement in statements:
                self._connection.execute(statement)
        except sqlite3.Error as error:
            raise DatabaseUnusable(f"cannot write the database {self.path}: {error}") from error
        finally:
            self._block_for(_BLOCKING_SECONDS)

    async def rows(self, sql: str, parameters: Sequence[Any] = ()) -> Sequence[Sequence[Any]]:
        """See the base class."""
        if not self.in_transaction():
            async with self.transaction(write=False):
                return self._execute(sql, parameters).fetchall()
        return self._execute(sql, parameters).fetchall()

    async def change(self, sql: str, parameters: Sequence[Any] = ()) -> int:
        """See the base class."""
        if not (self.in_transaction() and self._writable):
            async with self.transaction(write=True):
                return self._execute(sql, parameters).rowcount
        return self._execute(sql, parameters).rowcount

    async def returned(self, sql: str, parameters: Sequence[Any] = ()) -> Sequence[Sequence[Any]]:
        """See the base class."""
        async with self.transaction(write=True):
            return self._execute(sql, parameters).fetchall()

    async def append(self, table: str, column: str, values: Sequence[str]) -> None:
        """See the base class."""
        async with self.transaction(write=True):
            self._execute_many(f"INSERT INTO {table} ({column}) VALUES (?)", [(value,) for value in values])

    async def put(self, table: str, items: Sequence[tuple[str, Any]]) -> None:
        """See the base class."""
        async with self.transaction(write=True):
            self._execute_many(
                f"INSERT INTO {table} (key, value) VALUES (?, ?) "
                "ON CONFLICT (key) DO UPDATE SET value = EXCLUDED.value",
                items,
            )

    async def insert_new(self, table: Table, rows: Sequence[Sequence[Any]]) -> list[bool]:
        """See the base class. Many are nearly always all new; only else does it matter which, and is each asked."""
        names = list(table.stored)
        places = ", ".join("?" * len(names))
        sql = f"INSERT INTO {table.name} ({', '.join(names)}) VALUES ({places}) ON CONFLICT DO NOTHING"
        if len(rows) > 1:
            with suppress(_Undone):
                async with self.transaction(write=True):
                    if self._execute_many(sql, rows) < len(rows):
                        raise _Undone
                    self._count(table, rows)
                    return [True] * len(rows)
        async with self.transaction(write=True):
            is_new = [self._execute(sql, row).rowcount == 1 for row in rows]
            self._count(table, itertools.compress(rows, is_new))
            return is_new

    def _count(self, table: Table, new: Iterable[Sequence[Any]]) -> None:
        names = list(table.stored)
        place = names.index("status") if "status" in names else None
        numbers = Counter("" if place is None else row[place] for row in new)
        self._execute_many(
            "INSERT INTO counts VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET number = number + EXCLUDED.number",
            [(table.name, status, number) for status, number in numbers.items()],
        )

    async def replace(self, table: Table, rows: Sequence[Sequence[Any]], changed: Collection[str]) -> int:
        """See the base class."""
        names = list(table.stored)
        places = [place for place, name in enumerate(names) if name in changed]
        changes = ", ".join(f"{names[place]} = ?" for place in places)
        by_key = " AND ".join(f"{key} = ?" for key in table.keys)
        in_order = operator.itemgetter(*places, *map(names.index, table.keys))
        async with self.transaction(write=True):
            return self._execute_many(f"UPDATE {table.name} SET {changes} WHERE {by_key}", map(in_order, rows))

    def _execute(self, sql: str, parameters: Sequence[Any]) -> sqlite3.Cursor:
        try:
            return self._connection.execute(sql, parameters)
        except OverflowError as error:
            raise ValueError("a whole number has more than 63 bits") from error

    def _execute_many(self, sql: str, rows: Iterable[Sequence[Any]]) -> int:
        """Run a statement for each of some rows; returns how many it has changed."""
        try:
            return self._connection.executemany(sql, rows).rowcount
        except OverflowError as error:
            raise ValueError("a whole number has more than 63 bits") from error

    def in_transaction(self) -> bool:
        """See the base class."""
        return self._owner is not None and self._owner is asyncio.current_task()

    @asynccontextmanager
    async def transaction(self, *, write: bool, snapshot: bool = False) -> AsyncIterator[Self]:
        """See the base class; each is a snapshot, and one writes at a time. One within another is undone on its own."""
        if self.in_transaction():
            async with self._nested(write):
                yield self
            return
        async with self._lock:
            self._owner, self._writable = asyncio.current_task(), write
            try:
                await self._begin(write)
                yield self
                self._connection.execute("COMMIT")
            finally:
                # SQLite itself rolls back after some errors, such as a full disk.
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                self._owner = None

    async def _begin(self, write: bool) -> None:
        """Another process may be writing: wait for it here, where other tasks go on, instead of inside of SQLite."""
        deadline, delay = time.monotonic() + _BUSY_SECONDS, 0.001
        while True:
            try:
                self._connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise
            await asyncio.sleep(delay)
            delay = min(2 * delay, _LONGEST_BUSY_POLL_SECONDS)

    def _block_for(self, seconds: float) -> None:
        self._connection.execute(f"PRAGMA busy_timeout = {round(1000 * seconds)}")

    @asynccontextmanager
    async def _nested(self, write: bool) -> AsyncIterator[None]:
        if not write:
            yield
            return
        if not self._writable:
            raise RuntimeError("a write inside a transaction that was begun for reading")
        self._depth += 1
        name = f"nested_{self._depth}"
        self._connection.execute(f"SAVEPOINT {name}")
        try:
            yield
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute(f"ROLLBACK TO {name}")
            raise
        finally:
            if self._connection.in_transaction:
                self._connection.execute(f"RELEASE {name}")
            self._depth -= 1

    async def size_bytes(self) -> int:
        """Bytes of the file, pages that are free for reuse included, the write-ahead log not."""
        return self.path.stat().st_size

    async def close(self) -> None:
        """Fold the write-ahead log into the file and close it."""
        self._connection.close()


@contextmanager
def holding(lock_file: Path, otherwise: str) -> Iterator[None]:
    """Hold a lock that nobody else may have at the same time; a process that is killed holds nothing.

    otherwise: what DatabaseUnusable says if somebody has it.
    """
    try:
        make_private_folder(lock_file.parent)
        descriptor = os.open(lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise DatabaseUnusable(f"cannot write {lock_file}: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise DatabaseUnusable(otherwise) from None
    finally:
        os.close(descriptor)


def as_its_only_hub(database: Path) -> AbstractContextManager[None]:
    """Hold a database against a second hub. Raises DatabaseUnusable if there is one."""
    return holding(
        database.with_name(database.name + ".lock"),
        f"another hub is using {database}; stop it, or choose another file with --db",
    )
