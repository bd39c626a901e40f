"""Which database: a file, or an address of PostgreSQL."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeAlias

from agentlightning.utils.metrics import MetricsBackend

from store.hub.database.collections import SqlCollections
from store.hub.database.database import Database, DatabaseUnusable
from store.hub.database.lightning_store import SqlLightningStore
from store.hub.database.postgres_url import PostgresUrl
from store.hub.database.sqlite import SqliteDatabase

DatabaseAddress: TypeAlias = Path | PostgresUrl


def database_at(address: DatabaseAddress, *, fsync: bool = False) -> Database:
    """A database that is still to be connected to, if it is no file. Raises DatabaseUnusable."""
    if isinstance(address, Path):
        return SqliteDatabase(address, fsync=fsync)
    try:
        from store.hub.database.postgres import PostgresDatabase
    except ImportError as error:
        raise DatabaseUnusable(f"a PostgreSQL database needs a package: pip install '.[postgres]' ({error})") from error
    return PostgresDatabase(address)


@asynccontextmanager
async def opened_store(
    address: DatabaseAddress,
    *,
    fsync: bool = False,
    tracker: MetricsBackend | None = None,
    scan_debounce_seconds: float = 1.0,
) -> AsyncIterator[SqlLightningStore]:
    """The store in a database, ready for use; closed in the end. Raises DatabaseUnusable."""
    database = database_at(address, fsync=fsync)
    store = SqlLightningStore(database, tracker=tracker, scan_debounce_seconds=scan_debounce_seconds)
    await database.connect()
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def opened_collections(address: DatabaseAddress) -> AsyncIterator[SqlCollections]:
    """What a database keeps, ready for use; closed in the end. Raises DatabaseUnusable."""
    database = database_at(address)
    collections = SqlCollections(database)
    await database.connect()
    try:
        yield collections
    finally:
        await database.close()
