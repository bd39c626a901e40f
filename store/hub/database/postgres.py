"""A PostgreSQL database: a pool of connections, and transactions of many hubs at once.

A transaction that writes sees what others have committed (READ COMMITTED); whoever changes a rollout, its attempts or
its spans locks the rollout's row first (``SqlCollections.lock_rollouts``).
"""

import asyncio
import time
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import asyncpg
import sqlalchemy as sa

from store.hub.database.database import PATIENCE_SECONDS, Database, DatabaseAway, DatabaseUnusable, Rows
from store.hub.database.postgres_url import PostgresUrl
from store.hub.database.schema import VERSION, creation, other_version
from store.hub.database.statements import Statement
from store.printable import printable

OLDEST_SERVER = 13

CONNECTIONS = 10
"""The most that one hub process opens."""

SCHEMA = "agl_hub"
"""Where the tables are: apart from whatever else the database holds."""

_RETRY_SECONDS = 0.2
_CONNECT_SECONDS = 10.0
_STATEMENT_SECONDS = 120.0
_STATEMENTS_PREPARED = 500
_BEGIN = {
    False: "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
    True: "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE",
}
_PASSING = ("08", "40", "53", "55P03", "57", "58", "25006")
"""SQLSTATEs of what passes: connections, conflicts, exhausted resources, a server that stops or is a replica."""

_FAILURES = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)
"""What the driver raises; InternalClientError where a server died in the middle of an answer."""

_number = sa.bindparam("number", type_=sa.BigInteger())
_LOCK = Statement(sa.select(sa.func.pg_advisory_xact_lock(_number)))
_TRY_LOCK = Statement(sa.select(sa.func.pg_try_advisory_xact_lock(_number)))
_SIZE = Statement(sa.select(sa.func.pg_database_size(sa.func.current_database())))


class PostgresDatabase(Database):
    """A pool of connections. connections: the most that are open at once."""

    engine = "postgres"
    shared = True

    def __init__(self, url: PostgresUrl, *, connections: int = CONNECTIONS):
        super().__init__()
        self.url = url
        self._connections = connections
        self._pool: asyncpg.Pool | None = None

    async def connect(self) -> None:
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
            async with self._pool.acquire() as connection, connection.transaction():
                await self._create_tables(connection)
        except DatabaseUnusable:
            await self.close()
            raise
        except (*_FAILURES, ValueError) as error:
            await self.close()
            raise DatabaseUnusable(refusal(self.url, error)) from None  # what it came from may show the password

    async def _create_tables(self, connection: Any) -> None:
        if (version := connection.get_server_version()).major < OLDEST_SERVER:
            raise DatabaseUnusable(
                f"the PostgreSQL at {self.url} is version {version.major}; {OLDEST_SERVER} or newer is needed"
            )
        await connection.execute("SELECT pg_advisory_xact_lock($1)", _lock_number("schema"))
        if not await connection.fetchval("SELECT 1 FROM pg_namespace WHERE nspname = $1", SCHEMA):
            await connection.execute(f"CREATE SCHEMA {SCHEMA}")
        if not await connection.fetchval("SELECT 1 FROM pg_tables WHERE schemaname = $1", SCHEMA):
            for statement in creation("postgres"):
                await connection.execute(statement)
        has_marks = await connection.fetchval("SELECT to_regclass($1)", f"{SCHEMA}.marks")
        found = await connection.fetchval("SELECT value FROM marks WHERE key = 'version'") if has_marks else "1"
        if found != str(VERSION):
            raise DatabaseUnusable(f"cannot use the database {self.url}: {other_version(found, self.url)}")

    async def try_lock(self, name: str, *, wait: bool = False) -> bool:
        ((locked,),) = await self.change(_LOCK if wait else _TRY_LOCK, number=_lock_number(name))
        return wait or locked

    async def size_bytes(self) -> int:
        """Bytes of all that the database holds, what is not a hub's included."""
        return await self.value(_SIZE)

    async def close(self) -> None:
        if self._pool is not None:
            pool, self._pool = self._pool, None
            try:
                await asyncio.wait_for(pool.close(), _CONNECT_SECONDS)
            except TimeoutError:
                pool.terminate()

    @asynccontextmanager
    async def _session(self, write: bool) -> AsyncIterator[Any]:
        connection = await self._acquire()
        try:
            await self._answer(connection, connection.execute, _BEGIN[write])
            yield connection
            try:
                await self._answer(connection, connection.execute, "COMMIT")
            except DatabaseAway as error:
                error.undone = error.conflict or not write  # whether the commit arrived is not known
                raise
        finally:
            await self._release(connection)

    async def _run(self, connection: Any, sql: str, values: Sequence[Any]) -> Rows:
        return await self._answer(connection, connection.fetch, sql, *values)

    async def _run_each(self, connection: Any, sql: str, rows: Rows) -> None:
        await self._answer(connection, connection.executemany, sql, rows)

    async def _answer(self, connection: Any, method: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
        """Raises ValueError for values that the database cannot hold, DatabaseAway for what passes."""
        try:
            return await method(*arguments)  # the call itself raises where the connection broke since the last one
        except asyncpg.DataError as error:
            if "int64" in str(error):
                raise ValueError("a whole number has more than 63 bits") from error
            raise ValueError(f"the database cannot hold it: {_text(error)}") from error
        except _FAILURES as error:
            if isinstance(error, asyncpg.InternalClientError):
                with suppress(asyncpg.InterfaceError):
                    connection.terminate()  # nobody knows what it would answer next
            state = getattr(error, "sqlstate", None)
            if isinstance(state, str) and not state.startswith(_PASSING):
                raise  # a bug
            raise _away(self.url, error, conflict=isinstance(state, str) and state.startswith("40")) from error

    async def _acquire(self) -> Any:
        """A connection; new ones are tried for as long as a call waits. DatabaseAway after that."""
        deadline = time.monotonic() + PATIENCE_SECONDS
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
        except BaseException as error:
            with suppress(asyncpg.InterfaceError):  # one that broke has gone back to the pool by itself
                connection.terminate()
            if not isinstance(error, _FAILURES):
                raise
        finally:
            if self._pool is not None:
                await self._pool.release(connection)


def refusal(url: PostgresUrl, error: Exception) -> str:
    """Why the database cannot be used, and the remedy, in a line without the password."""
    match error:
        case asyncpg.InvalidPasswordError() | asyncpg.InvalidAuthorizationSpecificationError():
            who = f"user {url.user}" if url.user else "this user"
            reason = f"it does not let {who} in: set PGPASSWORD or PGPASSFILE, or see the server's pg_hba.conf"
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
    return zlib.crc32(f"{SCHEMA}: {name}".encode())


def _text(error: Exception) -> str:
    text = str(error).splitlines()
    return printable(text[0][:300]) if text else type(error).__name__
