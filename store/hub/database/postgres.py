"""A PostgreSQL database: a pool of connections, transactions of many hubs at once, and retries when it is away.

Every transaction that writes sees what others have committed (READ COMMITTED); whoever changes a rollout, or what
belongs to it, locks its row first (``SqlCollections.lock_rollouts``).
"""

import asyncio
import functools
import time
import zlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import asyncpg
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, insert

from store.hub.database.database import Database, DatabaseAway, DatabaseUnusable, Rows, places
from store.hub.database.postgres_url import PostgresUrl
from store.hub.database.schema import VERSION, creation
from store.hub.database.sqlite import other_version, taken_from
from store.hub.database.statements import DIALECTS, Statement, ordered
from store.printable import printable

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
_LOCKS = 0x57455257
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


class PostgresDatabase(Database):
    """A pool of connections, for one event loop.

    connections: the most that are open at once.
    """

    shared = True

    def __init__(self, url: PostgresUrl, *, connections: int = CONNECTIONS):
        super().__init__()
        self.url = url
        self._connections = connections
        self._pool: asyncpg.Pool | None = None

    async def connect(self) -> None:
        """See the base class."""
        try:
            self._pool = await asyncpg.create_pool(
                self.url.dsn,
                min_size=0,  # the pool would look after them with a task that logs every failure in thirty lines
                max_size=self._connections,
                reset=_leave,  # it would be a round trip, and every transaction here ends by itself
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
                await self._make_tables(connection)
        except DatabaseUnusable:
            await self.close()
            raise
        except (*_FAILURES, ValueError) as error:
            await self.close()
            raise DatabaseUnusable(refusal(self.url, error)) from None  # what it came from may show the password

    async def _make_tables(self, connection: Any) -> None:
        async with connection.transaction():
            await connection.execute("SELECT pg_advisory_xact_lock($1, $2)", _LOCKS, _lock_number("schema"))
            if not await connection.fetchval("SELECT 1 FROM pg_namespace WHERE nspname = $1", SCHEMA):
                await connection.execute(f"CREATE SCHEMA {SCHEMA}")
            if not await connection.fetchval("SELECT 1 FROM pg_tables WHERE schemaname = $1", SCHEMA):
                for statement in creation(DIALECTS["postgres"]):
                    await connection.execute(statement)
            has_marks = await connection.fetchval("SELECT to_regclass($1)", f"{SCHEMA}.marks")
            found = await connection.fetchval("SELECT value FROM marks WHERE key = 'version'") if has_marks else "1"
        if found != str(VERSION):
            raise DatabaseUnusable(f"cannot use the database {self.url}: {other_version(found, self.url)}")

    async def rows(self, statement: Statement, **parameters: Any) -> Rows:
        """See the base class. Outside a transaction it is tried again when the connection breaks."""
        sql, names, fixed = statement.postgres
        return await self._fetch(sql, ordered(names, fixed, parameters), write=False)

    async def change(self, statement: Statement, **parameters: Any) -> Rows:
        """See the base class."""
        sql, names, fixed = statement.postgres
        return await self._fetch(sql, ordered(names, fixed, parameters), write=True)

    async def insert(self, table: sa.Table, columns: Sequence[str], rows: Rows) -> None:
        """See the base class."""
        if rows:
            await self._fetch(_insertion(table, tuple(columns), None), _by_column(rows), write=True)

    async def insert_new(self, table: sa.Table, columns: Sequence[str], keys: Sequence[str], rows: Rows) -> list[bool]:
        """See the base class."""
        if not rows:
            return []
        added = await self._fetch(_insertion(table, tuple(columns), tuple(keys)), _by_column(rows), write=True)
        return taken_from(set(map(tuple, added)), places(columns, keys), rows)

    async def update(self, table: sa.Table, keys: Sequence[str], columns: Sequence[str], rows: Rows) -> None:
        """See the base class. Of rows with the same keys the last one counts."""
        last = {tuple(row[len(columns) :]): row for row in rows}
        if last:
            sql = _update(table, tuple(keys), tuple(columns))
            await self._fetch(sql, _by_column(list(last.values())), write=True)

    @asynccontextmanager
    async def _session(self, write: bool, snapshot: bool) -> AsyncIterator[Any]:
        connection = await self._acquire()
        try:
            await self._run(connection.execute, _BEGIN[write, snapshot])
            yield connection
            try:
                await self._run(connection.execute, "COMMIT")
            except DatabaseAway as error:
                error.undone = error.conflict  # whether the commit arrived is not known
                raise
        finally:
            await self._release(connection)

    async def lock(self, name: str) -> None:
        """See the base class."""
        await self._fetch("SELECT pg_advisory_xact_lock($1, $2)", [_LOCKS, _lock_number(name)], write=True)

    async def try_lock(self, name: str) -> bool:
        """See the base class."""
        sql = "SELECT pg_try_advisory_xact_lock($1, $2)"
        return (await self._fetch(sql, [_LOCKS, _lock_number(name)], write=True))[0][0]

    async def size_bytes(self) -> int:
        """Bytes of all that the database holds, what is not a hub's included."""
        return (await self._fetch("SELECT pg_database_size(current_database())", [], write=False))[0][0]

    async def close(self) -> None:
        """See the base class."""
        if self._pool is not None:
            pool, self._pool = self._pool, None
            try:
                await asyncio.wait_for(pool.close(), _CONNECT_SECONDS)
            except TimeoutError:
                pool.terminate()

    async def _fetch(self, sql: str, parameters: Sequence[Any], *, write: bool) -> Rows:
        """Run a statement in the task's transaction, or by itself."""
        mine = self._transactions.get(asyncio.current_task())
        if mine is not None:
            if write and not mine.writable:
                raise RuntimeError("a write inside a transaction that was begun for reading")
            return await self._run(mine.connection.fetch, sql, parameters)
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            connection = await self._acquire()
            try:
                return await self._run(connection.fetch, sql, parameters)
            except DatabaseAway as error:
                if write or time.monotonic() > deadline:
                    error.undone = error.conflict
                    raise
            finally:
                await self._release(connection)

    async def _run(self, method: Any, sql: str, parameters: Sequence[Any] = ()) -> Any:
        """Have a connection run a statement. ValueError for what it cannot hold, DatabaseAway for what passes."""
        try:
            return await method(sql, *parameters)
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
            raise _away(self.url, error, conflict=isinstance(state, str) and state.startswith("40")) from error

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


def _away(url: PostgresUrl, error: Exception, conflict: bool = False) -> DatabaseAway:
    return DatabaseAway(f"the database {url} cannot be used for the moment: {_text(error)}", conflict=conflict)


async def _leave(_connection: Any) -> None:
    """What is done to a connection that goes back to the pool."""


def _lock_number(name: str) -> int:
    return zlib.crc32(name.encode()) & 0x7FFFFFFF


def _by_column(rows: Rows) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)]


def _new_rows(table: sa.Table, columns: Sequence[str]) -> Any:
    """Rows as a parameter for each column: a list of its values."""

    def values(number: int, name: str) -> Any:
        kind = table.c[name].type
        plain = sa.Text() if isinstance(kind, sa.Text) else kind
        return sa.cast(sa.bindparam(f"values_{number}"), ARRAY(plain))

    lists = [values(number, name) for number, name in enumerate(columns)]
    return sa.func.unnest(*lists).table_valued(*columns, name="new").render_derived()


@functools.cache
def _insertion(table: sa.Table, columns: tuple[str, ...], new_keys: tuple[str, ...] | None) -> str:
    new = _new_rows(table, columns)
    statement = insert(table).from_select(list(columns), sa.select(*(new.c[name] for name in columns)))
    if new_keys is not None:
        statement = statement.on_conflict_do_nothing().returning(*(table.c[name] for name in new_keys))
    return str(statement.compile(dialect=DIALECTS["postgres"]))


@functools.cache
def _update(table: sa.Table, keys: tuple[str, ...], columns: tuple[str, ...]) -> str:
    names = [*columns, *(f"key_{name}" for name in keys)]
    kinds = sa.table("kinds", *(sa.column(name, table.c[name.removeprefix("key_")].type) for name in names))
    new = _new_rows(kinds, names)
    statement = sa.update(table).values({name: new.c[name] for name in columns})
    by_key = [table.c[name] == new.c[f"key_{name}"] for name in keys]
    return str(statement.where(*by_key).compile(dialect=DIALECTS["postgres"]))


def _text(error: Exception) -> str:
    text = str(error).splitlines()
    return printable(text[0][:300]) if text else type(error).__name__
