"""Opens the store in an SQLite file or a PostgreSQL database."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import sqlalchemy as sa

from store.hub.database.database import Database, DatabaseUnusable
from store.hub.database.lightning_store import SqlLightningStore
from store.hub.database.sqlite import SqliteDatabase

DatabaseAddress: TypeAlias = Path | sa.URL


@asynccontextmanager
async def opened_store(
    address: DatabaseAddress, *, fsync: bool = False, **options: Any
) -> AsyncIterator[SqlLightningStore]:
    """The store in a database, closed on exit. Raises DatabaseUnusable. options: of ``SqlLightningStore``."""
    database: Database
    if isinstance(address, Path):
        database = SqliteDatabase(address, fsync=fsync)
    else:
        try:
            from store.hub.database.postgres import PostgresDatabase
        except ImportError as error:
            raise DatabaseUnusable(f"PostgreSQL needs a package: pip install '.[postgres]' ({error})") from error
        database = PostgresDatabase(address)
    await database.connect()
    try:
        yield SqlLightningStore(database, **options)
    finally:
        await database.close()
