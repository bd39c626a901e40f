"""agentlightning's own store tests, run against our store: a pytest plugin (docs/operations/hub.md has the command).

Those tests make each store in a fixture of their own; what the fixtures of the memory backend give is ours here.
"""

from contextlib import suppress

import store  # noqa: F401  before agentlightning: sets what its import reads
from store.hub.database.lightning_store import SqlLightningStore
from store.hub.database.sqlite import SqliteDatabase

_DEBOUNCE_SECONDS = {"inmemory_store": 0.0, "inmemory_debounced_store": 5.0}


def pytest_fixture_setup(fixturedef, request):
    """Our store in the place of the memory backend; None leaves a fixture to pytest."""
    if fixturedef.argname not in _DEBOUNCE_SECONDS:
        return None
    if fixturedef.argname == "inmemory_debounced_store":
        request.getfixturevalue("fake_time")
    database = SqliteDatabase(request.getfixturevalue("tmp_path") / "hub.sqlite3")
    with suppress(StopIteration):
        database.connect().send(None)  # there is no event loop yet, and it waits for nothing
    made = SqlLightningStore(database, scan_debounce_seconds=_DEBOUNCE_SECONDS[fixturedef.argname])
    fixturedef.cached_result = (made, fixturedef.cache_key(request), None)
    return made
