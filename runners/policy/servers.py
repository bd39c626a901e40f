"""Connections to the servers that play policies, and the tokenizers that go with them, shared by a process's rollouts.

A policy here is the trained one, at any number of servers, or one with frozen weights.
"""

import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Generic, TypeVar

from runners.addresses import Addresses
from runners.errors import PolicyUnavailable, UnusableTokenizer
from runners.policy.chat_tokens import ChatTokens
from runners.policy.server import POLICY_PATIENCE_SECONDS, PolicyServer, seed_of
from runners.policy.shared import Shared
from store.schema import TRAINED_POLICY, PolicyResources, Sampling

logger = logging.getLogger(__name__)

Used = TypeVar("Used")


class Connections(Generic[Used]):
    """One connection to each server, however many rollouts use it.

    use: makes what callers get of a new connection, the run's name, the policy's name in it, and its sampling.
    addresses, patience_seconds: see ``PolicyServer``.
    """

    def __init__(
        self,
        use: Callable[[PolicyServer, str, str, Sampling], Awaitable[Used]],
        addresses: Addresses,
        patience_seconds: float = POLICY_PATIENCE_SECONDS,
    ):
        self._use = use
        self._addresses = addresses
        self._patience = patience_seconds
        self._made = Shared(self._make)

    async def get(self, resources: PolicyResources, name: str, caller: str, policy: str | None = None) -> Used:
        """What there is of the server that answers a caller's calls of the policy ``name`` (``where_served``)."""
        endpoint, model = where_served(resources, name, caller, policy)
        # By run, since another run may serve another model at the same address under the same name.
        _, used = await self._made.get((resources.run_name, name, endpoint, model, resources.sampling))
        return used

    async def close(self) -> None:
        for server, _ in await self._made.close():
            await server.close()

    async def _make(self, key: tuple[str, str, str, str, Sampling]) -> tuple[PolicyServer, Used]:
        run_name, name, endpoint, model, sampling = key
        server = PolicyServer(endpoint, model, sampling.temperature, self._addresses, self._patience)
        try:
            return server, await self._use(server, run_name, name, sampling)
        except BaseException:
            await server.close()
            raise


class Policies:
    """Servers and tokenizers of policies that are played token by token; one tokenizer for all servers of a policy.

    tokenizer: folder of the trained policy's tokenizer; None takes the folder that the policy's server names, if it is
        on this machine, and else the tokenizer of the server itself. A frozen policy's is always found that way.
    addresses, patience_seconds: see ``PolicyServer``.
    """

    def __init__(
        self,
        addresses: Addresses,
        tokenizer: Path | None = None,
        patience_seconds: float = POLICY_PATIENCE_SECONDS,
    ):
        self._tokenizer = tokenizer
        self._connections = Connections(self._with_tokens, addresses, patience_seconds)
        self._tokenizers = Shared(_load)

    async def serving(
        self, resources: PolicyResources, name: str = TRAINED_POLICY, seat: str = "", policy: str | None = None
    ) -> tuple[PolicyServer, ChatTokens]:
        """The server and the tokenizer with which a seat plays the policy ``name``. seat: which seat of which game.

        Raises UnusableTokenizer and PolicyUnavailable.
        """
        return await self._connections.get(resources, name, seat, policy)

    async def tokens(self, resources: PolicyResources) -> ChatTokens:
        """The tokenizer of the trained policy, served or not. Raises UnusableTokenizer and PolicyUnavailable."""
        if resources.endpoints:
            return (await self.serving(resources))[1]
        folder = self._tokenizer or Path(resources.model)
        if self._tokenizer is None and not folder.is_dir():
            raise UnusableTokenizer(
                f"the policy of {resources.resources_id} is served nowhere, and its tokenizer's folder {folder} is not "
                f"on this machine: copy the model's tokenizer files here and name their folder with --tokenizer"
            )
        return await self._tokenizers.get((resources.run_name, folder, resources.sampling.thinking))

    async def close(self) -> None:
        await self._connections.close()
        await self._tokenizers.close()

    async def _with_tokens(
        self, server: PolicyServer, run_name: str, name: str, sampling: Sampling
    ) -> tuple[PolicyServer, ChatTokens]:
        own = self._tokenizer if name == TRAINED_POLICY else None
        folder = own or Path(await server.model_folder())
        if own is None and not folder.is_dir():
            logger.info("%s is not on this machine: asking %s for every token", folder, server.endpoint)
            tokens = await ChatTokens.served(server, sampling.thinking)
        else:
            tokens = await self._tokenizers.get((run_name, folder, sampling.thinking))
        server.stop_token_ids = (tokens.end_of_turn,)
        return server, tokens


async def _load(key: tuple[str, Path, bool]) -> ChatTokens:
    _, folder, thinking = key
    logger.info("tokenizer from %s", folder)
    return await ChatTokens.load(folder, thinking)


def where_served(resources: PolicyResources, name: str, caller: str, policy: str | None = None) -> tuple[str, str]:
    """(base URL of the server that answers a player's calls, the policy's name there).

    name: ``TRAINED_POLICY`` or one of ``resources.frozen``. caller: which seat or actor of which task; of a policy's
    servers a caller always gets the same one, so that its prefix cache helps. policy: which of the
    player's policies (``PolicyResources.policy_of``); None for the first. Raises PolicyUnavailable.
    """
    own = [one for one in resources.policies if one.seated_as == name and policy in (None, one.name)]
    served = own[0] if own else resources
    if not served.endpoints:
        raise PolicyUnavailable(
            f"the task wants {TRAINED_POLICY!r}, and {resources.resources_id} says that it is served nowhere"
        )
    return served.endpoints[seed_of(caller) % len(served.endpoints)], served.model
