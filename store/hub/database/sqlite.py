"""One SQLite file.

Statements run in the event loop's thread: they take microseconds, less than a switch to another thread.
"""

import asyncio
import fcntl
import json
import os
import sqlite3
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from store.hub.database.database import RETRY_SECONDS, Database, DatabaseUnusable, Rows
from store.hub.database.schema import LATER_INDEX, VERSION, creation, other_version

APPLICATION_ID = 0x57455257
"""SQLite's ``application_id`` of a hub's file: "WERW"."""

_LONGEST_BUSY_POLL_SECONDS = 0.05
_BLOCKING_MILLISECONDS = 5
"""How long a statement may block the event loop for another process's lock."""


class SqliteDatabase(Database):
    """A file for its owner only, created if missing. ``close`` leaves a single file.

    fsync: flush the disk at every request, to survive a power cut. Without it, a killed process loses nothing, and a
    power cut loses the last seconds but never the file.
    """

    engine = "sqlite"

    def __init__(self, path: Path, *, fsync: bool = False):
        super().__init__()
        self.path, self.name = path, str(path)
        self._fsync = fsync
        self._transaction = asyncio.Lock()
        self._turn_to_write = asyncio.Lock()
        self._connection: sqlite3.Connection

    async def connect(self) -> None:
        try:
            make_private_folder(self.path.parent)
            if not self.path.exists():  # closing a file releases this process's locks on it
                os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
            self._connection = sqlite3.connect(
                self.path, isolation_level=None, check_same_thread=False, timeout=RETRY_SECONDS
            )
        except (OSError, sqlite3.Error) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise DatabaseUnusable(f"cannot open the database {self.path}: {reason}") from error
        try:
            _configure(self._connection, self.path, self._fsync)
        except (ValueError, sqlite3.Error) as error:
            self._connection.close()
            raise DatabaseUnusable(f"cannot use the database {self.path}: {error}") from error

    async def _run(self, connection: sqlite3.Connection, sql: str, values: Sequence[Any]) -> Rows:
        flat = [json.dumps(value, ensure_ascii=False) if isinstance(value, list) else value for value in values]
        _reject_nul(part for value in values for part in (value if isinstance(value, list) else (value,)))
        return connection.execute(sql, flat).fetchall()

    async def _run_each(self, connection: sqlite3.Connection, sql: str, rows: Rows) -> None:
        _reject_nul(value for row in rows for value in row)
        connection.executemany(sql, rows)

    @asynccontextmanager
    async def _session(self, write: bool) -> AsyncIterator[sqlite3.Connection]:
        """Waits for another process's write here instead of inside SQLite, so that reads and other tasks proceed."""
        deadline, delay = time.monotonic() + RETRY_SECONDS, 0.001
        async with self._turn_to_write if write else nullcontext():
            while True:
                async with self._transaction:
                    if self._has_begun(write, deadline):
                        try:
                            yield self._connection
                            self._connection.execute("COMMIT")
                        finally:
                            # SQLite itself rolls back after some errors, such as a full disk.
                            if self._connection.in_transaction:
                                self._connection.execute("ROLLBACK")
                        return
                await asyncio.sleep(delay)
                delay = min(2 * delay, _LONGEST_BUSY_POLL_SECONDS)

    def _has_begun(self, write: bool, deadline: float) -> bool:
        """Begin a transaction; False if another process writes. After the deadline that is an error."""
        try:
            self._connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            return False
        return True

    async def try_lock(self, name: str, *, wait: bool = False) -> bool:
        """True: only one transaction writes at a time."""
        return True

    async def size_bytes(self) -> int:
        """Bytes of the file, including free pages, without the write-ahead log."""
        return self.path.stat().st_size

    async def close(self) -> None:
        """Merge the write-ahead log into the file and close it."""
        self._connection.close()


def _reject_nul(values: Iterable[Any]) -> None:
    # json_each ends a text there, so that it is never found again; documents are JSON, which escapes it.
    if any(isinstance(value, str) and "\0" in value for value in values):
        raise ValueError("the database cannot store the value: a text contains the character NUL")


def make_private_folder(folder: Path) -> None:
    """Create a missing folder for its owner only, with its parents."""
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)


def _configure(connection: sqlite3.Connection, path: Path, fsync: bool) -> None:
    def pragma(text: str) -> Any:
        row = connection.execute(f"PRAGMA {text}").fetchone()
        return None if row is None else row[0]

    is_new = pragma("application_id") == 0 and not connection.execute("SELECT 1 FROM sqlite_master").fetchone()
    if not is_new and pragma("application_id") != APPLICATION_ID:
        raise ValueError("it is not a hub's database")
    if not is_new and pragma("user_version") != VERSION:
        raise ValueError(other_version(pragma("user_version"), path))
    if pragma("journal_mode=WAL") != "wal":
        raise ValueError("its file system does not support a write-ahead log; choose a local disk")
    pragma(f"synchronous={'FULL' if fsync else 'NORMAL'}")
    pragma(f"cache_size=-{32 * 1024}")  # kibibytes
    pragma(f"journal_size_limit={64 * 1024 * 1024}")
    pragma("temp_store=MEMORY")
    if is_new:
        script = ";\n".join(creation("sqlite"))
        identity = f"PRAGMA application_id={APPLICATION_ID};\nPRAGMA user_version={VERSION}"
        connection.executescript(f"BEGIN IMMEDIATE;\n{script};\n{identity};\nCOMMIT;")
    elif os.access(path, os.W_OK):
        connection.execute(LATER_INDEX)
    pragma(f"busy_timeout={_BLOCKING_MILLISECONDS}")


@contextmanager
def lock_database(database: Path) -> Iterator[None]:
    """Lock a database against a second hub; a killed process releases it. Raises DatabaseUnusable."""
    database = database.resolve()  # one lock for all links to a file
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
        raise DatabaseUnusable(
            f"another hub has locked {database}: stop it, or choose another file with --db"
        ) from None
    finally:
        os.close(descriptor)
