"""A PostgreSQL database: a pool of connections, transactions of many hubs at once, and what to do when it is away.

Every transaction that writes sees what others have committed (READ COMMITTED); who changes a rollout, or what belongs
to it, locks its row first (``SqlCollections.lock_rollouts``).
"""

import asyncio
import time
import zlib
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Self

import asyncpg

from store.printable import printable
from store.sql.database import Database, DatabaseAway, DatabaseUnusable, numbered
from store.sql.dialects import PostgresDialect
from store.sql.postgres_url import PostgresUrl
from store.sql.tables import Table

FORMAT_VERSION = 1
"""Version of the tables; ``hub_format`` has it, and a newer one is refused."""

OLDEST_SERVER = 13

CONNECTIONS = 10
"""The most that one hub process opens."""

SCHEMA = "agl_hub"
"""Where the tables are: apart from whatever else the database holds."""

_PATIENCE_SECONDS = 10.0
"""How long a call waits for a database that is away."""

_RETRY_SECONDS = 0.2
_CONNECT_SECONDS = 10.0
_STATEMENT_SECONDS = 120.0
_STATEMENTS_PREPARED = 500
LOCKS = 0x57455257
_ARRAYS = {str: "text[]", int: "bigint[]", float: "float8[]"}
_BEGIN = {
    (False, False): "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
    (False, True): "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
    (True, False): "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE",
    (True, True): "BEGIN ISOLATION LEVEL REPEATABLE READ READ WRITE",
}
_PASSING = ("08", "40", "53", "55P03", "57", "58", "25006")
"""SQLSTATEs of what passes: connections, conflicts, exhausted resources, a server that stops or is a replica."""

_FAILURES = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)
"""What the driver raises; InternalClientError where a server died in the middle of an answer."""


@dataclass
class _Open:
    """A transaction of a task."""

    connection: Any
    writable: bool
    spoilt: bool = False


class PostgresDatabase(Database):
    """A pool of connections, for one event loop.

    connections: the most that are open at once.
    """

    def __init__(self, url: PostgresUrl, *, connections: int = CONNECTIONS):
        self.url = url
        self.dialect = PostgresDialect()
        self.answers = True
        self._connections = connections
        self._statements: list[str] = []
        self._pool: asyncpg.Pool | None = None
        self._open: dict[asyncio.Task[Any] | None, _Open] = {}

    def create(self, *statements: str) -> None:
        """See the base class: they run when it is connected to."""
        self._statements += statements

    async def connect(self) -> None:
        """Open the pool, and make the tables if they are not there. Raises DatabaseUnusable."""
        try:
            # What is done to a connection that is given back is a round trip: every transaction here ends by itself.
            self._pool = await asyncpg.create_pool(
                self.url.dsn,
                min_size=0,  # the pool would look after them with a task that tells every failure in thirty lines
                max_size=self._connections,
                reset=_leave,
                timeout=_CONNECT_SECONDS,
                command_timeout=_STATEMENT_SECONDS,
                statement_cache_size=_STATEMENTS_PREPARED,
                max_inactive_connection_lifetime=0,
                server_settings={"application_name": "agl hub", "search_path": SCHEMA, "jit": "off"},
            )
            async with self._pool.acquire() as connection:
                version = connection.get_server_version()
                if version.major < OLDEST_SERVER:
                    raise DatabaseUnusable(
                        f"the PostgreSQL at {self.url} is version {version.major}; {OLDEST_SERVER} or newer is needed"
                    )
                await self._migrate(connection)
        except DatabaseUnusable:
            await self.close()
            raise
        except (*_FAILURES, ValueError) as error:
            await self.close()
            raise DatabaseUnusable(refusal(self.url, error)) from None  # what it came from may show the password

    async def _migrate(self, connection: Any) -> None:
        async with connection.transaction():
            await connection.execute("SELECT pg_advisory_xact_lock($1, $2)", LOCKS, lock_number("format"))
            if not await connection.fetchval("SELECT 1 FROM pg_namespace WHERE nspname = $1", SCHEMA):
                await connection.execute(f"CREATE SCHEMA {SCHEMA}")
            version = 0
            if await connection.fetchval("SELECT to_regclass($1)", f"{SCHEMA}.hub_format"):
                version = await connection.fetchval("SELECT version FROM hub_format")
            if version > FORMAT_VERSION:
                raise DatabaseUnusable(
                    f"cannot use the database {self.url}: a newer version of this program wrote it (format {version})"
                )
            if version == 0:
                for statement in self._statements:
                    await connection.execute(statement)
                await connection.execute("CREATE TABLE hub_format (version INTEGER NOT NULL)")
                await connection.execute("INSERT INTO hub_format VALUES ($1)", FORMAT_VERSION)

    async def rows(self, sql: str, parameters: Sequence[Any] = ()) -> Sequence[Sequence[Any]]:
        """See the base class. Outside of a transaction it is asked again when the connection breaks."""
        return await self._run("fetch", sql, parameters, write=False)

    async def change(self, sql: str, parameters: Sequence[Any] = ()) -> int:
        """See the base class."""
        status = await self._run("execute", sql, parameters, write=True)
        count = status.rpartition(" ")[2]
        return int(count) if count.isdecimal() else 0

    async def returned(self, sql: str, parameters: Sequence[Any] = ()) -> Sequence[Sequence[Any]]:
        """See the base class."""
        return await self._run("fetch", sql, parameters, write=True)

    async def append(self, table: str, column: str, values: Sequence[str]) -> None:
        """See the base class."""
        await self.change(f"INSERT INTO {table} ({column}) SELECT * FROM unnest(?::text[])", [list(values)])

    async def put(self, table: str, items: Sequence[tuple[str, Any]]) -> None:
        """See the base class."""
        values = "bigint[]" if items and isinstance(items[0][1], int) else "text[]"
        await self.change(
            f"INSERT INTO {table} (key, value) SELECT * FROM unnest(?::text[], ?::{values}) "
            "ON CONFLICT (key) DO UPDATE SET value = EXCLUDED.value",
            [list(column) for column in zip(*items, strict=True)] if items else [[], []],
        )

    async def insert_new(self, table: Table, rows: Sequence[Sequence[Any]]) -> list[bool]:
        """See the base class."""
        if not rows:
            return []
        arrays = ", ".join(f"?::{_ARRAYS[scalar]}" for scalar in table.stored.values())
        names = list(table.stored)
        keys = ", ".join(table.keys)
        added = await self.returned(
            f"INSERT INTO {table.name} ({', '.join(names)}) SELECT * FROM unnest({arrays}) "
            f"ON CONFLICT ({keys}) DO NOTHING RETURNING {keys}",
            [list(column) for column in zip(*rows, strict=True)],
        )
        left = {tuple(row) for row in added}
        places = [names.index(key) for key in table.keys]
        is_new = []
        for row in rows:
            key = tuple(row[place] for place in places)
            is_new.append(key in left)
            left.discard(key)
        return is_new

    async def replace(self, table: Table, rows: Sequence[Sequence[Any]], changed: Collection[str]) -> int:
        """See the base class. Of rows with the same key the last one stays."""
        names = list(table.stored)
        places = [names.index(key) for key in table.keys]
        last = {tuple(row[place] for place in places): row for row in rows}
        if not last:
            return 0
        arrays = ", ".join(f"?::{_ARRAYS[scalar]}" for scalar in table.stored.values())
        changes = ", ".join(f"{name} = new.{name}" for name in names if name in changed)
        by_key = " AND ".join(f"{table.name}.{key} = new.{key}" for key in table.keys)
        found = await self.returned(
            f"UPDATE {table.name} SET {changes} FROM unnest({arrays}) AS new ({', '.join(names)}) WHERE {by_key} "
            f"RETURNING {', '.join(f'new.{key}' for key in table.keys)}",
            [list(column) for column in zip(*last.values(), strict=True)],
        )
        there = set(map(tuple, found))
        return sum(tuple(row[place] for place in places) in there for row in rows)

    @asynccontextmanager
    async def transaction(self, *, write: bool, snapshot: bool = False) -> AsyncIterator[Self]:
        """See the base class. A part that fails spoils the whole, even if its error is caught."""
        task = asyncio.current_task()
        outer = self._open.get(task)
        if outer is not None:
            if write and not outer.writable:
                raise RuntimeError("a write inside a transaction that was begun for reading")
            try:
                yield self
            except BaseException:
                outer.spoilt = outer.spoilt or write
                raise
            return
        connection = await self._acquire()
        try:
            await self._tell(connection.execute, _BEGIN[write, snapshot])
            mine = self._open[task] = _Open(connection, write)
            try:
                yield self
            finally:
                del self._open[task]
            if mine.spoilt:
                raise RuntimeError("a part of this transaction has failed; all of it is undone")
            try:
                await self._tell(connection.execute, "COMMIT")
            except DatabaseAway as error:
                error.undone = error.conflict  # whether the commit was heard is not known
                raise
        finally:
            await self._release(connection)

    def in_transaction(self) -> bool:
        """See the base class."""
        return asyncio.current_task() in self._open

    async def lock(self, name: str) -> None:
        """See the base class."""
        await self._run("execute", "SELECT pg_advisory_xact_lock(?, ?)", [LOCKS, lock_number(name)], write=True)

    async def try_lock(self, name: str) -> bool:
        """See the base class."""
        sql = "SELECT pg_try_advisory_xact_lock(?, ?)"
        return (await self._run("fetch", sql, [LOCKS, lock_number(name)], write=True))[0][0]

    async def tidy(self) -> None:
        """Add up what connections that are gone have counted, so that it stays little to add up for every answer."""
        await self.change(
            "WITH gone AS (DELETE FROM counts WHERE shard <> 0 AND shard NOT IN (SELECT pid FROM pg_stat_activity) "
            "RETURNING name, status, number) INSERT INTO counts SELECT name, status, 0, sum(number) FROM gone "
            "GROUP BY name, status "
            "ON CONFLICT (name, status, shard) DO UPDATE SET number = counts.number + EXCLUDED.number"
        )

    async def size_bytes(self) -> int:
        """Bytes of all that the database holds, what is not a hub's included."""
        return await self.value("SELECT pg_database_size(current_database())")

    async def close(self) -> None:
        """See the base class."""
        if self._pool is not None:
            pool, self._pool = self._pool, None
            try:
                await asyncio.wait_for(pool.close(), _CONNECT_SECONDS)
            except TimeoutError:
                pool.terminate()

    async def _run(self, method: str, sql: str, parameters: Sequence[Any], *, write: bool) -> Any:
        """Run a statement in the task's transaction, or by itself."""
        mine = self._open.get(asyncio.current_task())
        if mine is not None:
            if write and not mine.writable:
                raise RuntimeError("a write inside a transaction that was begun for reading")
            return await self._tell(getattr(mine.connection, method), sql, parameters)
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            connection = await self._acquire()
            try:
                return await self._tell(getattr(connection, method), sql, parameters)
            except DatabaseAway as error:
                if write or time.monotonic() > deadline:
                    error.undone = error.conflict
                    raise
            finally:
                await self._release(connection)

    async def _tell(self, method: Any, sql: str, parameters: Sequence[Any] = ()) -> Any:
        return await tell(self.url, method, sql, parameters)

    async def _acquire(self) -> Any:
        """A connection, new ones being tried for as long as a call waits. DatabaseAway after that."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            if self._pool is None:
                raise DatabaseAway(f"the database {self.url} is not connected to")
            try:
                connection = await self._pool.acquire(timeout=max(deadline - time.monotonic(), _RETRY_SECONDS))
                self.answers = True
                return connection
            except _FAILURES as error:
                if not isinstance(error, TimeoutError):
                    self.answers = False
                if time.monotonic() > deadline:
                    raise _away(self.url, error) from error
            await asyncio.sleep(_RETRY_SECONDS)

    async def _release(self, connection: Any) -> None:
        """Give a connection back; what it has not committed is undone."""
        try:
            if not connection.is_closed() and connection.is_in_transaction():
                await connection.execute("ROLLBACK")
        except _FAILURES:
            with suppress(asyncpg.InterfaceError):  # one that broke has gone back to the pool by itself
                connection.terminate()
        except BaseException:
            with suppress(asyncpg.InterfaceError):
                connection.terminate()
            raise
        finally:
            if self._pool is not None:
                await self._pool.release(connection)


def refusal(url: PostgresUrl, error: Exception) -> str:
    """Why the database cannot be used, and what to do about it, in a line without the password."""
    match error:
        case asyncpg.InvalidPasswordError() | asyncpg.InvalidAuthorizationSpecificationError():
            who = f"user {url.user}" if url.user else "us"
            reason = (
                f"it does not let {who} in: set PGPASSWORD, or name a password file with PGPASSFILE; is pg_hba.conf "
                "as it should be?"
            )
        case asyncpg.InvalidCatalogNameError():
            reason = "there is no such database: make it with createdb, or name another with --db"
        case asyncpg.InsufficientPrivilegeError():
            reason = f"{_text(error)}: GRANT CREATE ON DATABASE to the user, or let its owner start the hub once"
        case asyncpg.PostgresError():
            reason = _text(error)
        case ValueError() | asyncpg.InterfaceError():
            reason = "the driver does not understand the address or its options"
        case _:
            reason = f"no PostgreSQL answers there ({_text(error)}): start it, or name another with --db"
    return f"cannot use the database {url}: {reason}"


async def tell(url: PostgresUrl, method: Any, sql: str, parameters: Sequence[Any] = ()) -> Any:
    """Have a connection run a statement. ValueError for what it cannot hold, DatabaseAway for what passes."""
    try:
        return await method(numbered(sql), *parameters)
    except asyncpg.DataError as error:
        if "int64" in str(error):
            raise ValueError("a whole number has more than 63 bits") from error
        raise ValueError(f"the database cannot hold it: {_text(error)}") from error
    except _FAILURES as error:
        if isinstance(error, asyncpg.InternalClientError):
            with suppress(asyncpg.InterfaceError):
                method.__self__.terminate()  # nobody knows what it would answer next
        state = getattr(error, "sqlstate", None)
        if isinstance(state, str) and not state.startswith(_PASSING):
            raise  # a bug
        raise _away(url, error, conflict=isinstance(state, str) and state.startswith("40")) from error


def _away(url: PostgresUrl, error: Exception, conflict: bool = False) -> DatabaseAway:
    return DatabaseAway(f"the database {url} cannot be used for the moment: {_text(error)}", conflict=conflict)


async def _leave(_connection: Any) -> None:
    """What is done to a connection that goes back to the pool."""


def lock_number(name: str) -> int:
    """A name of a lock as a number of 31 bits."""
    return zlib.crc32(name.encode()) & 0x7FFFFFFF


def _text(error: Exception) -> str:
    text = str(error).splitlines()
    return printable(text[0][:300]) if text else type(error).__name__
