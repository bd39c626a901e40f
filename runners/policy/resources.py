"""The resources of rollouts, fetched from the hub once for each version, however many rollouts need them."""

import logging

from tenacity import AsyncRetrying, RetryCallState, RetryError, retry_if_result, wait_fixed

from runners.addresses import Addresses
from runners.errors import MissingResources
from runners.policy.shared import Shared
from store.client import StoreClient
from store.protocol import AttemptedRollout
from store.schema import PolicyResources

logger = logging.getLogger(__name__)

_POLL_SECONDS = 2.0
_VERSIONS_KEPT = 16


class PublishedResources:
    """What the hub has published, by id. Remembers the last few, since many rollouts share each.

    patience_seconds: how long resources that the hub does not have yet are waited for.
    addresses: that models may be called at.
    """

    def __init__(self, client: StoreClient, patience_seconds: float, addresses: Addresses):
        self._client = client
        self._addresses = addresses
        self._patience = patience_seconds
        self._fetched = Shared(self._fetch, _VERSIONS_KEPT)

    async def of(self, rollout: AttemptedRollout) -> PolicyResources:
        """The rollout's resources.

        Raises MissingResources when they do not come in time, or cannot be read, AddressRefused (``Addresses.check``).
        """
        if rollout.resources_id is None:
            raise MissingResources(f"rollout {rollout.rollout_id} names no resources; was it enqueued by this system?")
        return await self._fetched.get(rollout.resources_id)

    def forget(self, resources_id: str) -> None:
        """Ask the hub again next time, as when what these resources name turned out not to be there."""
        self._fetched.forget(resources_id)

    async def close(self) -> None:
        await self._fetched.close()

    async def _fetch(self, resources_id: str) -> PolicyResources:
        def warn_once(state: RetryCallState) -> None:
            if state.attempt_number == 1:
                logger.warning("waiting for resources %r, which the hub does not have yet", resources_id)

        retrying = AsyncRetrying(
            retry=retry_if_result(lambda found: not found),
            wait=wait_fixed(_POLL_SECONDS),
            stop=lambda state: state.idle_for >= self._patience,
            before_sleep=warn_once,
        )
        try:
            found = await retrying(self._client.query_resources, resources_id=resources_id)
        except RetryError as error:
            raise MissingResources(
                f"the hub has no resources {resources_id!r} after {self._patience:.0f} s; "
                f"the algorithm publishes them before it enqueues rollouts"
            ) from error
        try:
            resources = PolicyResources.decode(found[0])
        except ValueError as error:
            raise MissingResources(str(error)) from error
        await self._addresses.check(resources)
        return resources
