"""The servers that answer agents' calls, one connection to each, however many attempts use it."""

from runners.addresses import Addresses
from runners.agents.gateway.chat_server import ChatServer
from runners.policy.server import POLICY_PATIENCE_SECONDS, PolicyServer
from runners.policy.servers import where_served
from runners.policy.shared import Shared
from store.schema import PolicyResources, Sampling


class ChatServers:
    """Connections to the trained policy's servers and to those of frozen policies.

    patience_seconds, addresses: see ``PolicyServer``.
    """

    def __init__(self, patience_seconds: float = POLICY_PATIENCE_SECONDS, addresses: Addresses | None = None):
        self._patience = patience_seconds
        self._addresses = addresses
        self._connections = Shared(self._connect)

    async def get(self, resources: PolicyResources, policy: str, caller: str) -> ChatServer:
        """The server that answers a policy's calls; of several, a caller always gets the same one.

        Raises PolicyUnavailable.
        """
        endpoint, model = where_served(resources, policy, caller)
        return await self._connections.get((resources.run_name, endpoint, model, resources.sampling))

    async def close(self) -> None:
        """Close the connections."""
        for chat in await self._connections.close():
            await chat.server.close()

    async def _connect(self, key: tuple[str, str, str, Sampling]) -> ChatServer:
        _, endpoint, model, sampling = key
        server = PolicyServer(endpoint, model, sampling.temperature, self._patience, self._addresses)
        chat = ChatServer(server, sampling.thinking)
        try:
            await chat.prepare()
        except BaseException:
            await server.close()
            raise
        return chat
