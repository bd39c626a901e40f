"""One connection for a program that does one thing after the other, in a thread of its own: archives and exports."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from store.sql.database import DatabaseUnusable
from store.sql.dialects import Dialect, SqliteDialect
from store.sql.opening import DatabaseAddress
from store.sql.sqlite import open_connection


class Session(Protocol):
    """A connection. Statements have ``?`` for their parameters."""

    dialect: Dialect

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> Sequence[Sequence[Any]]:
        """A query's rows."""

    def change(self, sql: str, parameters: Sequence[Any] = ()) -> None:
        """Run a statement."""

    def transaction(self, *, write: bool) -> Any:
        """A context: all or nothing, and for reading a snapshot."""

    def be_the_only(self, purpose: str) -> bool:
        """Keep others from this purpose as long as the session lasts; False if there is one."""

    def shrink(self) -> None:
        """Give the space of what was removed back to the disk, where the engine does not do so itself."""


class SqliteSession:
    """A file, which must be there."""

    _SHRINK_PAGES = 500

    def __init__(self, path: Path):
        if not path.exists():
            raise DatabaseUnusable(f"there is no database {path}; name another with --db")
        self.dialect = SqliteDialect()
        self._connection = open_connection(path)

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> Sequence[Sequence[Any]]:
        """See Session."""
        return self._connection.execute(sql, parameters).fetchall()

    def change(self, sql: str, parameters: Sequence[Any] = ()) -> None:
        """See Session."""
        self._connection.execute(sql, parameters)

    @contextmanager
    def transaction(self, *, write: bool) -> Iterator[None]:
        """See Session."""
        self._connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
        try:
            yield
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")

    def be_the_only(self, purpose: str) -> bool:
        """See Session; a lock file in the folder does it here."""
        return True

    def shrink(self) -> None:
        """See Session."""
        execute = self._connection.execute
        before, free = None, execute("PRAGMA freelist_count").fetchone()
        while free != before:
            execute(f"PRAGMA incremental_vacuum({self._SHRINK_PAGES})").fetchall()
            before, free = free, execute("PRAGMA freelist_count").fetchone()
        execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


class PostgresSession:
    """A PostgreSQL database; not from within a running event loop."""

    def __init__(self, url: Any):
        import asyncpg

        from store.sql.postgres import SCHEMA, PostgresDialect, refusal

        self.dialect = PostgresDialect()
        self._url = url
        self._loop = asyncio.new_event_loop()
        self._connection: Any = None
        settings = {"application_name": "agl hub archive", "search_path": SCHEMA}
        try:
            self._connection = self._loop.run_until_complete(asyncpg.connect(url.dsn, server_settings=settings))
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, ValueError) as error:
            self._loop.close()
            raise DatabaseUnusable(refusal(url, error)) from None  # what it came from may show the password
        if not self.rows("SELECT to_regclass(?)", [f"{SCHEMA}.hub_format"])[0][0]:
            self.close()
            raise DatabaseUnusable(f"there are no games of a hub in {url}; name another with --db")

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> Sequence[Sequence[Any]]:
        """See Session."""
        return self._run("fetch", sql, parameters)

    def change(self, sql: str, parameters: Sequence[Any] = ()) -> None:
        """See Session."""
        self._run("execute", sql, parameters)

    @contextmanager
    def transaction(self, *, write: bool) -> Iterator[None]:
        """See Session."""
        self.change("BEGIN READ WRITE" if write else "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        try:
            yield
        except BaseException:
            if not self._connection.is_closed():
                self.change("ROLLBACK")
            raise
        self.change("COMMIT")

    def be_the_only(self, purpose: str) -> bool:
        """See Session."""
        from store.sql.postgres import LOCKS, lock_number

        return self.rows("SELECT pg_try_advisory_lock(?, ?)", [LOCKS, lock_number(purpose)])[0][0]

    def shrink(self) -> None:
        """See Session; autovacuum does."""

    def close(self) -> None:
        """Close the connection."""
        self._loop.run_until_complete(self._connection.close())
        self._loop.close()

    def _run(self, method: str, sql: str, parameters: Sequence[Any]) -> Any:
        from store.sql.postgres import tell

        return self._loop.run_until_complete(tell(self._url, getattr(self._connection, method), sql, parameters))


def session_of(address: DatabaseAddress) -> SqliteSession | PostgresSession:
    """A connection to a database that is there. Raises DatabaseUnusable."""
    return SqliteSession(address) if isinstance(address, Path) else PostgresSession(address)
