"""The stock memory backend and our SQLite one side by side; every test that takes ``backend`` runs against both."""

import pytest

import store  # noqa: F401  before agentlightning: sets what its import reads

# isort: split
from agentlightning import InMemoryLightningStore
from agentlightning.store.collection import InMemoryLightningCollections

from store.sqlite.collections import SqliteCollections
from store.sqlite.database import Database
from store.sqlite.lightning_store import SqliteLightningStore


@pytest.fixture(params=["memory", "sqlite"])
def backend(request):
    return request.param


@pytest.fixture
def database(tmp_path):
    database = Database(tmp_path / "hub.sqlite3")
    yield database
    database.close()


@pytest.fixture
def collections(backend, database):
    return InMemoryLightningCollections("thread") if backend == "memory" else SqliteCollections(database)


@pytest.fixture
def lightning_store(backend, database):
    """A store that looks for overdue attempts at every call."""
    if backend == "memory":
        return InMemoryLightningStore(thread_safe=True, scan_debounce_seconds=0)
    return SqliteLightningStore(database, scan_debounce_seconds=0)
