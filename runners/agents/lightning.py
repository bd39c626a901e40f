"""A runner for agentlightning's ``Trainer``, with the same worker and gateway.

``Trainer(algorithm=AgentVerl(...), runner=GatewayRunner(), n_runners=2).fit(agent, train, val_dataset=val)``.
The runner must be passed, since the Trainer starts runners before the algorithm. agentlightning's own runner would
give the agent the servers' address, and no tokens would be recorded.
"""

import asyncio
import logging
from collections.abc import Iterable
from typing import Any

from agentlightning import ExecutionEvent, LightningStoreClient, LitAgent, Runner

from runners.addresses import Addresses
from runners.agents.agent_play import AgentPlay
from runners.agents.lit import LitPlayer
from runners.command_line import unique_worker_name
from runners.policy.client import RUNNER_POLICY_TIMEOUT_SECONDS
from runners.worker import Worker
from store.client import StoreUnreachable, connect

logger = logging.getLogger(__name__)

_POLL_SECONDS = 0.2
_STOP_SECONDS = 5.0


class GatewayRunner(Runner[Any]):
    """Runs up to ``n`` tasks at once in each of the trainer's runner processes.

    policy_timeout_seconds: how long to retry an unreachable policy server. allow_addresses: URLs of models outside of
        the hub's machine and private networks, as --allow-address of ``python -m runners.agents``.
    """

    def __init__(
        self,
        n: int = 8,
        policy_timeout_seconds: float = RUNNER_POLICY_TIMEOUT_SECONDS,
        allow_addresses: Iterable[str] = (),
    ):
        self._n = n
        self._allowed = tuple(allow_addresses)
        self._policy_timeout = policy_timeout_seconds

    def init(self, agent: LitAgent[Any], **kwargs: Any) -> None:
        """Set the agent. Raises ValueError for hooks, which are not supported."""
        if kwargs.get("hooks"):
            raise ValueError("GatewayRunner does not support hooks: remove the Trainer's hooks")
        self._agent = agent

    def init_worker(self, worker_id: int, store: LightningStoreClient, **kwargs: Any) -> None:
        """Set the hub's address. ``AgentVerl`` rejects a store without HTTP."""
        self._url = store.server_address_root

    async def iter(self, *, event: ExecutionEvent | None = None) -> None:
        """Play until the event is set, then hand back tasks in flight."""
        client = connect(self._url)
        addresses = Addresses(self._url, self._allowed)
        play = AgentPlay(client, LitPlayer(self._agent), self._policy_timeout, addresses=addresses)
        worker = Worker(client, play, worker_id=unique_worker_name(), max_concurrent=self._n)
        running = asyncio.create_task(worker.run())
        try:
            while not running.done() and not (event is not None and event.is_set()):
                await asyncio.wait({running}, timeout=_POLL_SECONDS)
            if not running.done():
                worker.hand_back()
                await asyncio.wait({running}, timeout=_STOP_SECONDS)
        finally:
            running.cancel()  # the hub may be gone already
            await asyncio.wait({running})
            await play.close()
            await client.close()
        if not running.cancelled() and (error := running.exception()) is not None:
            if event is not None and event.is_set() and isinstance(error, StoreUnreachable):
                return
            raise error

    def teardown_worker(self, worker_id: int, *args: Any, **kwargs: Any) -> None:
        """Nothing to do: ``iter`` closes its connections."""

    def teardown(self, *args: Any, **kwargs: Any) -> None:
        """Nothing to do."""
