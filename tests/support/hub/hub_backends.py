"""Both databases; every test that takes ``engine`` runs on each."""

import pytest
import sqlalchemy as sa

import store  # noqa: F401  before agentlightning: sets what its import reads

# isort: split

from store.hub.database.collections import SqlCollections
from store.hub.database.lightning_store import SqlLightningStore
from store.hub.database.opening import opened_store

pytest_plugins = ("tests.support.hub.postgres_server",)


@pytest.fixture(params=["sqlite", "postgres"])
def engine(request):
    return request.param


@pytest.fixture
async def address(engine, request, tmp_path):
    """Of each of our engines: where an empty database is, or will be."""
    from tests.support.hub.postgres_server import a_database  # not before pytest has it as a plugin

    if engine == "postgres":
        async with a_database(request.getfixturevalue("postgres_server")) as url:
            yield sa.make_url(url)
    else:
        yield tmp_path / "hub.sqlite3"


@pytest.fixture
async def ours(address) -> SqlCollections:
    """Our collections on each engine."""
    async with opened_store(address) as opened:
        yield opened.collections


@pytest.fixture(name="store")
async def our_store(address) -> SqlLightningStore:
    """Our store on each engine, looking for overdue attempts at every call."""
    async with opened_store(address, scan_debounce_seconds=0) as opened:
        yield opened


@pytest.fixture
async def two_hubs(postgres_url):
    """Two hubs' stores over one PostgreSQL database."""
    address = sa.make_url(postgres_url)
    async with opened_store(address) as one, opened_store(address) as another:
        yield one, another


@pytest.fixture
async def file_store(tmp_path) -> SqlLightningStore:
    """A store in a file."""
    async with opened_store(tmp_path / "hub.sqlite3") as opened:
        yield opened
