"""Both databases; every test that takes ``engine`` runs on each."""

from contextlib import asynccontextmanager

import pytest
import sqlalchemy as sa

import store  # noqa: F401  before agentlightning: sets what its import reads

# isort: split

from store.hub.database import schema
from store.hub.database.collections import SqlCollections
from store.hub.database.lightning_store import SqlLightningStore
from store.hub.database.opening import opened_store
from store.hub.database.postgres_url import PostgresUrl
from store.hub.database.statements import Statement

pytest_plugins = ("tests.support.hub.postgres_server",)

_QUEUED = Statement(sa.select(schema.rollout_queue.c.item).order_by(schema.rollout_queue.c.position))
OURS = ("sqlite", "postgres")


@pytest.fixture(params=OURS)
def engine(request):
    return request.param


@asynccontextmanager
async def address_for(engine, request, tmp_path):
    """Where an engine keeps its data in this test."""
    from tests.support.hub.postgres_server import a_database  # not before pytest has it as a plugin

    if engine == "postgres":
        async with a_database(request.getfixturevalue("postgres_server")) as url:
            yield PostgresUrl(url)
    else:
        yield tmp_path / "hub.sqlite3"


async def queued(opened):
    """The ids of the rollouts that wait for a runner."""
    return [rollout_id for (rollout_id,) in await opened.collections.database.rows(_QUEUED)]


@pytest.fixture
async def address(engine, request, tmp_path):
    """Of each of our engines: where an empty database is, or will be."""
    async with address_for(engine, request, tmp_path) as where:
        yield where


@pytest.fixture
async def ours(address) -> SqlCollections:
    """Our collections on each engine."""
    async with opened_store(address) as opened:
        yield opened.collections


@pytest.fixture
async def database(tmp_path):
    """A file."""
    async with opened_store(tmp_path / "hub.sqlite3") as opened:
        yield opened.collections.database


@pytest.fixture
async def postgres(postgres_url) -> SqlCollections:
    async with opened_store(PostgresUrl(postgres_url)) as opened:
        yield opened.collections


@pytest.fixture
async def our_store(address) -> SqlLightningStore:
    """Our store on each engine, looking for overdue attempts at every call."""
    async with opened_store(address, scan_debounce_seconds=0) as opened:
        yield opened
