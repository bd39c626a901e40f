"""A PostgreSQL database: a pool of connections, and concurrent transactions of several hubs.

Writing transactions are READ COMMITTED; a change of a rollout, its attempts or its spans locks the rollout's row first
(``SqlCollections.lock_rollouts``).
"""

import asyncio
import zlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import sqlalchemy as sa

from store.hub.database.database import RETRY_SECONDS, Database, DatabaseUnavailable, DatabaseUnusable, Rows
from store.hub.database.schema import VERSION, creation, other_version
from store.hub.database.statements import Statement
from store.printable import printable

OLDEST_SERVER = 13

CONNECTIONS = 10
"""Maximum of one hub process."""

SCHEMA = "agl_hub"
"""Schema of the tables, separate from other data in the database."""

_CONNECT_SECONDS = 10.0
_STATEMENT_SECONDS = 120.0
_IDLE_SECONDS = 60
"""Of a transaction between two statements."""
_PASSING = ("08", "25P03", "40", "53", "55P03", "57", "58", "25006")
"""SQLSTATEs to retry: connections, conflicts, exhausted resources, a server that stops or is a replica."""

_FAILURES = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)
"""Errors of the driver; InternalClientError when a server dies during a response."""

_number = sa.bindparam("number", type_=sa.BigInteger())
_LOCK = Statement(sa.select(sa.func.pg_advisory_xact_lock(_number)))
_TRY_LOCK = Statement(sa.select(sa.func.pg_try_advisory_xact_lock(_number)))
_SIZE = Statement(sa.select(sa.func.pg_database_size(sa.func.current_database())))


class PostgresDatabase(Database):
    """A pool of at most ``CONNECTIONS``."""

    engine = "postgres"
    shared = True

    def __init__(self, url: sa.URL):
        super().__init__()
        self.url = url
        self.name = str(sa.URL.create("postgresql", url.username, None, url.host, url.port, url.database))
        self._pool: asyncpg.Pool

    async def connect(self) -> None:
        try:
            self._pool = await asyncpg.create_pool(
                self.url.render_as_string(hide_password=False),
                min_size=0,  # the pool's maintenance task logs every failure in thirty lines
                max_size=CONNECTIONS,
                reset=_leave,
                timeout=_CONNECT_SECONDS,
                command_timeout=_STATEMENT_SECONDS,
                statement_cache_size=500,
                max_inactive_connection_lifetime=0,
                server_settings={
                    "application_name": "agl hub",
                    "search_path": SCHEMA,
                    "jit": "off",
                    # The locks of a hub whose machine has gone, which sends no end of its connections.
                    "idle_in_transaction_session_timeout": f"{_IDLE_SECONDS * 1000}",
                    "tcp_keepalives_idle": "30",
                    "tcp_keepalives_interval": "10",
                    "tcp_keepalives_count": "3",
                },
            )
            async with self._pool.acquire() as connection, connection.transaction():
                await _create_tables(connection, self.name)
        except (*_FAILURES, ValueError) as error:
            reason = str(error) if isinstance(error, DatabaseUnusable) else _refusal(error, self.url.username)
            raise DatabaseUnusable(
                f"cannot use the database {self.name}: {reason}"
            ) from None  # the cause may contain the password

    async def try_lock(self, name: str, *, wait: bool = False) -> bool:
        ((locked,),) = await self.change(_LOCK if wait else _TRY_LOCK, number=_lock_number(name))
        return wait or locked

    async def size_bytes(self) -> int:
        """Size of the whole database, including data that is not the hub's."""
        return await self.value(_SIZE)

    async def close(self) -> None:
        try:
            await asyncio.wait_for(self._pool.close(), _CONNECT_SECONDS)
        except TimeoutError:
            self._pool.terminate()

    @asynccontextmanager
    async def _session(self, write: bool) -> AsyncIterator[Any]:
        connected = committing = False
        try:
            async with self._pool.acquire(timeout=RETRY_SECONDS) as connection:
                connected = self.answers = True
                isolation = "read_committed" if write else "repeatable_read"
                async with connection.transaction(isolation=isolation, readonly=not write):
                    yield connection
                    committing = write
        except asyncpg.DataError as error:
            raise ValueError(f"the database cannot store the value: {_text(error)}") from error
        except _FAILURES as error:
            exhausted = isinstance(error, TimeoutError) and self._pool.get_size() >= CONNECTIONS
            if not connected and not exhausted:
                self.answers = False
            state = getattr(error, "sqlstate", None)
            if isinstance(state, str) and not state.startswith(_PASSING):
                raise  # a bug
            message = f"the database {self.name} is unavailable: {_text(error)}"
            # A commit without a response may have arrived.
            raise DatabaseUnavailable(message, undone=not committing) from error

    async def _run(self, connection: Any, sql: str, values: Sequence[Any]) -> Rows:
        return await connection.fetch(sql, *values)

    async def _run_each(self, connection: Any, sql: str, rows: Rows) -> None:
        await connection.executemany(sql, rows)


async def _create_tables(connection: Any, name: str) -> None:
    """Create the tables in an empty database. Raises DatabaseUnusable for tables of another version."""
    if (version := connection.get_server_version()).major < OLDEST_SERVER:
        raise DatabaseUnusable(f"its PostgreSQL is version {version.major}; {OLDEST_SERVER} or newer is needed")
    await connection.execute("SELECT pg_advisory_xact_lock($1)", _lock_number("schema"))
    if not await connection.fetchval("SELECT 1 FROM pg_namespace WHERE nspname = $1", SCHEMA):
        await connection.execute(f"CREATE SCHEMA {SCHEMA}")
    if not await connection.fetchval("SELECT 1 FROM pg_tables WHERE schemaname = $1", SCHEMA):
        for statement in creation("postgres"):
            await connection.execute(statement)
    found = await connection.fetchval("SELECT value FROM marks WHERE key = 'version'")
    if found != str(VERSION):
        raise DatabaseUnusable(other_version(found, name))


def _refusal(error: Exception, user: str | None) -> str:
    """The reason and the remedy, without the password."""
    match error:
        case asyncpg.InvalidPasswordError() | asyncpg.InvalidAuthorizationSpecificationError():
            who = f"user {user}" if user else "this user"
            return f"it rejects {who}: set PGPASSWORD or PGPASSFILE, or see the server's pg_hba.conf"
        case asyncpg.InvalidCatalogNameError():
            return "the database does not exist: create it with createdb, or name another with --db"
        case asyncpg.InsufficientPrivilegeError():
            return f"{_text(error)}: GRANT CREATE ON DATABASE to the user, or let its owner start the hub once"
        case asyncpg.PostgresError():
            return _text(error)
        case ValueError() | asyncpg.InterfaceError():
            return "the driver rejects the address or its options"
        case _:
            return f"no PostgreSQL responds there ({_text(error)}): start it, or name another with --db"


async def _leave(_connection: Any) -> None:
    """Replaces the driver's reset, a round trip that is not needed after complete transactions."""


def _lock_number(name: str) -> int:
    return zlib.crc32(f"{SCHEMA}: {name}".encode())


def _text(error: Exception) -> str:
    text = str(error).splitlines()
    return printable(text[0][:300]) if text else type(error).__name__
