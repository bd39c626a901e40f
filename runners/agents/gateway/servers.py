"""The servers that answer agents' calls, one connection to each, however many attempts use it."""

import asyncio

from runners.agents.gateway.chat_server import ChatServer
from runners.policy.server import POLICY_PATIENCE_SECONDS, PolicyServer
from runners.policy.servers import where_served
from store.schema import PolicyResources, Sampling


class ChatServers:
    """Connections to the trained policy's servers and to those of frozen policies.

    patience_seconds: with servers that are away (``PolicyServer``).
    """

    def __init__(self, patience_seconds: float = POLICY_PATIENCE_SECONDS):
        self._patience = patience_seconds
        self._connections: dict[tuple[str, str, str, Sampling], asyncio.Task[ChatServer]] = {}

    async def get(self, resources: PolicyResources, policy: str, caller: str) -> ChatServer:
        """The server that answers a policy's calls; of several, a caller always gets the same one.

        Raises PolicyUnavailable.
        """
        endpoint, model = where_served(resources, policy, caller)
        key = (resources.run_name, endpoint, model, resources.sampling)
        connection = self._connections.get(key)
        if connection is None or (connection.done() and (connection.cancelled() or connection.exception())):
            connection = self._connections[key] = asyncio.create_task(
                self._connect(endpoint, model, resources.sampling)
            )
        return await asyncio.shield(connection)  # a call that is broken off must not take it from the others

    async def close(self) -> None:
        """Close the connections."""
        for connection in self._connections.values():
            connection.cancel()
        for outcome in await asyncio.gather(*self._connections.values(), return_exceptions=True):
            if not isinstance(outcome, BaseException):
                await outcome.server.close()

    async def _connect(self, endpoint: str, model: str, sampling: Sampling) -> ChatServer:
        server = PolicyServer(endpoint, model, sampling.temperature, self._patience)
        chat = ChatServer(server, sampling.thinking)
        try:
            await chat.prepare()
        except BaseException:
            await server.close()
            raise
        return chat
