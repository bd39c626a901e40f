"""One SQLite file: opening it, transactions, and the lock that keeps a second hub out.

Statements run in the caller's thread: they take microseconds, and a hand-over to another thread costs more than they
do. A transaction belongs to the asyncio task that began it; others wait for it, in any thread.
"""

import asyncio
import fcntl
import functools
import json
import os
import sqlite3
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import aiologic
import sqlalchemy as sa
from sqlalchemy.dialects.sqlite import insert

from store.hub.database.database import Database, DatabaseUnusable, Rows, places
from store.hub.database.schema import VERSION, creation
from store.hub.database.statements import DIALECTS, Statement, ordered

APPLICATION_ID = 0x57455257
"""SQLite's ``application_id`` of a hub's file: "WERW"."""

_BUSY_SECONDS = 10.0
_LONGEST_BUSY_POLL_SECONDS = 0.05
_BLOCKING_SECONDS = 0.005
"""How long a statement may wait for another process's lock in this thread, where nothing else goes on."""

_CACHE_KIBIBYTES = 32 * 1024
_LOG_SIZE_LIMIT_BYTES = 64 * 1024 * 1024


class SqliteDatabase(Database):
    """A file, made if it is not there, that only its owner can read. ``close`` leaves a single file behind.

    fsync: also survive a power cut, at the price of a disk flush for each request. Without it, a process that is
    killed loses nothing, and a machine that loses power loses the last seconds but never the file.
    Raises DatabaseUnusable.
    """

    def __init__(self, path: Path, *, fsync: bool = False):
        super().__init__()
        self.path = path
        self._lock = aiologic.Lock()
        self._connection = _opened(path, fsync)
        self._connection.execute(f"PRAGMA busy_timeout = {round(1000 * _BLOCKING_SECONDS)}")

    async def rows(self, statement: Statement, **parameters: Any) -> Rows:
        """See the base class."""
        if self.in_transaction():
            return self._run(statement, parameters)
        async with self.transaction(write=False):
            return self._run(statement, parameters)

    async def change(self, statement: Statement, **parameters: Any) -> Rows:
        """See the base class."""
        async with self.transaction(write=True):
            return self._run(statement, parameters)

    def _run(self, statement: Statement, parameters: dict[str, Any]) -> Rows:
        sql, names, fixed = statement.sqlite
        values = ordered(names, fixed, parameters)
        lists = [json.dumps(value, ensure_ascii=False) if isinstance(value, list) else value for value in values]
        with _values_that_fit():
            return self._connection.execute(sql, lists).fetchall()

    async def insert(self, table: sa.Table, columns: Sequence[str], rows: Rows) -> None:
        """See the base class."""
        async with self.transaction(write=True):
            self._run_many(_insertion(table, tuple(columns), False), rows)

    async def insert_new(self, table: sa.Table, columns: Sequence[str], keys: Sequence[str], rows: Rows) -> list[bool]:
        """See the base class."""
        async with self.transaction(write=True):
            (last,) = self._connection.execute(_last_position(table)).fetchone()
            added = self._run_many(_insertion(table, tuple(columns), True), rows)
            if added == len(rows):
                return [True] * added
            new = set(self._connection.execute(_keys_after(table, tuple(keys)), [last]).fetchall())
        return taken_from(new, places(columns, keys), rows)

    async def update(self, table: sa.Table, keys: Sequence[str], columns: Sequence[str], rows: Rows) -> None:
        """See the base class."""
        async with self.transaction(write=True):
            self._run_many(_update(table, tuple(keys), tuple(columns)), rows)

    def _run_many(self, sql: str, rows: Rows) -> int:
        """Run a statement for each row; returns how many rows it has changed."""
        with _values_that_fit():
            return self._connection.executemany(sql, rows).rowcount

    @asynccontextmanager
    async def _session(self, write: bool, snapshot: bool) -> AsyncIterator[sqlite3.Connection]:
        """See the base class; each sees a snapshot, and there is one at a time."""
        async with self._lock:
            try:
                await self._begin(write)
                yield self._connection
                self._connection.execute("COMMIT")
            finally:
                # SQLite itself rolls back after some errors, such as a full disk.
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")

    async def _begin(self, write: bool) -> None:
        """Another process may be writing: wait for it here, where other tasks go on, instead of inside SQLite."""
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

    async def lock(self, name: str) -> None:
        """See the base class: whoever writes is alone anyway."""

    async def try_lock(self, name: str) -> bool:
        """See the base class."""
        return True

    async def size_bytes(self) -> int:
        """Bytes of the file, pages that are free for reuse included, the write-ahead log not."""
        return self.path.stat().st_size

    async def close(self) -> None:
        """Fold the write-ahead log into the file and close it."""
        self._connection.close()


@contextmanager
def _values_that_fit() -> Iterator[None]:
    try:
        yield
    except OverflowError as error:
        raise ValueError("a whole number has more than 63 bits") from error


def taken_from(new: set[tuple[Any, ...]], key_places: Sequence[int], rows: Rows) -> list[bool]:
    """For each row whether it is the first with a new key."""
    is_new = []
    for row in rows:
        key = tuple(row[place] for place in key_places)
        is_new.append(key in new)
        new.discard(key)
    return is_new


@functools.cache
def _insertion(table: sa.Table, columns: tuple[str, ...], only_new: bool) -> str:
    statement = insert(table).values({name: sa.bindparam(name) for name in columns})
    compiled = (statement.on_conflict_do_nothing() if only_new else statement).compile(dialect=DIALECTS["sqlite"])
    assert tuple(compiled.positiontup) == columns
    return str(compiled)


@functools.cache
def _update(table: sa.Table, keys: tuple[str, ...], columns: tuple[str, ...]) -> str:
    values = {name: sa.bindparam(f"new_{name}") for name in columns}
    by_key = [table.c[name] == sa.bindparam(f"key_{name}") for name in keys]
    return str(sa.update(table).ordered_values(*values.items()).where(*by_key).compile(dialect=DIALECTS["sqlite"]))


@functools.cache
def _last_position(table: sa.Table) -> str:
    last = sa.func.coalesce(sa.func.max(table.c.position), sa.literal_column("-1"))
    return str(sa.select(last).compile(dialect=DIALECTS["sqlite"]))


@functools.cache
def _keys_after(table: sa.Table, keys: tuple[str, ...]) -> str:
    after = table.c.position > sa.bindparam("last")
    return str(sa.select(*(table.c[name] for name in keys)).where(after).compile(dialect=DIALECTS["sqlite"]))


def _opened(path: Path, fsync: bool) -> sqlite3.Connection:
    try:
        make_private_folder(path.parent)
        if not path.exists():
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=_BUSY_SECONDS)
    except (OSError, sqlite3.Error) as error:
        raise DatabaseUnusable(f"cannot open the database {path}: {_reason(error)}") from error
    try:
        _configure(connection, path, fsync)
    except (ValueError, sqlite3.Error) as error:
        connection.close()
        raise DatabaseUnusable(f"cannot use the database {path}: {_reason(error)}") from error
    return connection


def make_private_folder(folder: Path) -> None:
    """Make a folder that only its owner can look into, and those above it, if it is not there."""
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)


def _configure(connection: sqlite3.Connection, path: Path, fsync: bool) -> None:
    def pragma(text: str) -> Any:
        row = connection.execute(f"PRAGMA {text}").fetchone()
        return None if row is None else row[0]

    is_new = pragma("application_id") == 0 and not connection.execute("SELECT 1 FROM sqlite_master").fetchone()
    if is_new:
        pragma("auto_vacuum=INCREMENTAL")  # only before the first table; lets the file shrink bit by bit
    elif pragma("application_id") != APPLICATION_ID:
        raise ValueError("it holds something else than a hub's games")
    elif pragma("user_version") != VERSION:
        raise ValueError(other_version(pragma("user_version"), path))
    if pragma("journal_mode=WAL") != "wal":
        raise ValueError("its file system does not support a write-ahead log; choose a local disk")
    pragma(f"synchronous={'FULL' if fsync else 'NORMAL'}")
    pragma(f"cache_size=-{_CACHE_KIBIBYTES}")
    pragma(f"journal_size_limit={_LOG_SIZE_LIMIT_BYTES}")
    pragma("temp_store=MEMORY")
    if is_new:
        script = ";\n".join(creation(DIALECTS["sqlite"]))
        identity = f"PRAGMA application_id={APPLICATION_ID};\nPRAGMA user_version={VERSION}"
        connection.executescript(f"BEGIN IMMEDIATE;\n{script};\n{identity};\nCOMMIT;")


def other_version(version: object, database: object) -> str:
    """What to do with a database that another version of this program made."""
    return (
        f"its tables are version {version}, and this program knows {VERSION}: choose another database with --db, and "
        f"save its games with the version that wrote it, `python -m store export --db {database} games.jsonl`"
    )


def _reason(error: Exception) -> str:
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)


@contextmanager
def as_its_only_hub(database: Path) -> Iterator[None]:
    """Hold a database against a second hub; a process that is killed holds nothing. Raises DatabaseUnusable."""
    lock_file = database.with_name(database.name + ".lock")
    try:
        make_private_folder(lock_file.parent)
        descriptor = os.open(lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise DatabaseUnusable(f"cannot write {lock_file}: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise DatabaseUnusable(f"another hub is using {database}; stop it, or choose another file with --db") from None
    finally:
        os.close(descriptor)
