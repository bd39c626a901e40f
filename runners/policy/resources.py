"""Fetches the resources of rollouts from the hub, once per version and minute."""

import asyncio
import logging

from runners.addresses import Addresses
from runners.errors import MissingResources
from runners.policy.shared import Shared
from store.client import StoreClient
from store.protocol import AttemptedRollout
from store.schema import PolicyResources

logger = logging.getLogger(__name__)

_POLL_SECONDS = 2.0
_TRIES = 30  # for resources that are not published yet
_VERSIONS_KEPT = 16
_FRESH_SECONDS = 60.0
"""A resumed run publishes other opponents or another judge under the ids that it has published before."""


class PublishedResources:
    """A cache of the hub's resources by id, which many rollouts share.

    addresses: the allowed addresses of models.
    """

    def __init__(self, client: StoreClient, addresses: Addresses):
        self._client = client
        self._addresses = addresses
        self._fetched = Shared(self._fetch, _VERSIONS_KEPT, _FRESH_SECONDS)

    async def of(self, rollout: AttemptedRollout) -> PolicyResources:
        """The rollout's resources.

        Raises MissingResources if they are not published in time or are invalid, AddressRefused (``Addresses.check``).
        """
        if rollout.resources_id is None:
            raise MissingResources(f"rollout {rollout.rollout_id} has no resources_id; was it enqueued by this system?")
        return await self._fetched.get(rollout.resources_id)

    def forget(self, resources_id: str) -> None:
        """Fetch again next time, e.g. when servers in these resources turned out to be gone."""
        self._fetched.forget(resources_id)

    async def close(self) -> None:
        await self._fetched.close()

    async def _fetch(self, resources_id: str) -> PolicyResources:
        for number in range(_TRIES):
            if found := await self._client.query_resources(resources_id=resources_id):
                break
            if number == 0:
                logger.warning("waiting for resources %r, which the hub does not have yet", resources_id)
            await asyncio.sleep(_POLL_SECONDS)
        else:
            raise MissingResources(
                f"the hub has no resources {resources_id!r} after {_TRIES * _POLL_SECONDS:.0f} s; "
                f"the algorithm publishes them before it enqueues rollouts"
            )
        try:
            resources = PolicyResources.decode(found[0])
        except ValueError as error:
            raise MissingResources(str(error)) from error
        await self._addresses.check(resources)
        return resources
