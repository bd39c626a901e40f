"""Resources that the hub does not have yet, or never gets."""

from types import SimpleNamespace

import pytest

from runners.addresses import Addresses
from runners.errors import MissingResources
from runners.policy import resources
from runners.policy.resources import PublishedResources
from store.protocol import ResourcesUpdate
from store.schema import PolicyResources

PUBLISHED = PolicyResources(run_name="run", version=0, endpoints=(), model="m")


class FakeClient:
    """missing: the number of queries that find nothing."""

    def __init__(self, missing):
        self.missing = missing

    async def query_resources(self, resources_id):
        self.missing -= 1
        if self.missing >= 0:
            return []
        return [
            ResourcesUpdate(
                resources_id=resources_id, create_time=0, update_time=0, version=1, resources=PUBLISHED.encode()
            )
        ]


@pytest.mark.parametrize("missing", [3, 10_000])
async def test_a_rollout_waits_a_while_for_its_resources(monkeypatch, missing):
    monkeypatch.setattr(resources, "_POLL_SECONDS", 0.0)
    found = PublishedResources(FakeClient(missing), Addresses("http://127.0.0.1:4747"))
    rollout = SimpleNamespace(rollout_id="r", resources_id=PUBLISHED.resources_id)
    if missing == 3:
        assert await found.of(rollout) == PUBLISHED
    else:
        with pytest.raises(MissingResources, match=f"no resources '{PUBLISHED.resources_id}'"):
            await found.of(rollout)
