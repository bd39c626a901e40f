"""The servers that play policies token by token and the tokenizers that go with them, shared by all games of a process.

A policy here is the trained one, at any number of servers, or one with frozen weights.
"""

import asyncio
import logging
from pathlib import Path

from runners.addresses import Addresses
from runners.errors import PolicyUnavailable, UnusableTokenizer
from runners.policy.chat_tokens import ChatTokens
from runners.policy.served_tokens import ServedTokens
from runners.policy.server import POLICY_PATIENCE_SECONDS, PolicyServer, seed_of
from runners.policy.shared import Shared
from store.schema import TRAINED_POLICY, PolicyResources, Sampling

logger = logging.getLogger(__name__)

Served = tuple[PolicyServer, ChatTokens]


class Policies:
    """One connection to each server, and one tokenizer for all servers of a policy, however many games are played.

    tokenizer: folder of the trained policy's tokenizer; None takes the folder that the policy's server names, if it is
        on this machine, and else the tokenizer of the server itself. A frozen policy's is always found that way.
    patience_seconds, addresses: see ``PolicyServer``.
    """

    def __init__(
        self,
        tokenizer: Path | None = None,
        patience_seconds: float = POLICY_PATIENCE_SECONDS,
        addresses: Addresses | None = None,
    ):
        self._tokenizer = tokenizer
        self._patience = patience_seconds
        self._addresses = addresses
        self._connections = Shared(self._connect)
        self._tokenizers: dict[tuple[str, Path, bool], ChatTokens] = {}
        self._loading = asyncio.Lock()

    async def serving(
        self, resources: PolicyResources, name: str = TRAINED_POLICY, seat: str = "", policy: str | None = None
    ) -> Served:
        """The server and the tokenizer with which a seat plays the policy ``name``.

        name: ``TRAINED_POLICY`` or one of ``resources.frozen``. seat: which seat of which game; of the trained policy's
        servers a seat always gets the same one, whose prefix cache knows what it was told so far. policy: see
        ``where_served``.
        Raises UnusableTokenizer and PolicyUnavailable.
        """
        endpoint, model = where_served(resources, name, seat, policy)
        tokenizer = self._tokenizer if name == TRAINED_POLICY else None
        # By run, since another run may serve another model at the same address under the same name.
        return await self._connections.get((resources.run_name, endpoint, model, resources.sampling, tokenizer))

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
        return await self._tokens_in(folder, resources.run_name, resources.sampling.thinking)

    async def close(self) -> None:
        """Close the connections."""
        for server, _ in await self._connections.close():
            await server.close()

    async def _connect(self, key: tuple[str, str, str, Sampling, Path | None]) -> Served:
        run_name, endpoint, model, sampling, tokenizer = key
        server = PolicyServer(endpoint, model, sampling.temperature, self._patience, self._addresses)
        try:
            tokens = await self._tokens_of(server, run_name, tokenizer, sampling.thinking)
        except BaseException:
            await server.close()
            raise
        server.stop_token_ids = (tokens.end_of_turn,)
        return server, tokens

    async def _tokens_of(
        self, server: PolicyServer, run_name: str, tokenizer: Path | None, thinking: bool
    ) -> ChatTokens:
        folder = tokenizer or Path(await server.model_folder())
        if tokenizer is None and not folder.is_dir():
            logger.info("%s is not on this machine: asking %s for every token", folder, server.endpoint)
            return await ServedTokens.of(server, thinking)
        return await self._tokens_in(folder, run_name, thinking)

    async def _tokens_in(self, folder: Path, run_name: str, thinking: bool) -> ChatTokens:
        key = (run_name, folder, thinking)
        async with self._loading:  # all servers of a policy name the same folder
            if key not in self._tokenizers:
                logger.info("tokenizer from %s", folder)
                self._tokenizers[key] = await asyncio.to_thread(load_chat_tokens, folder, thinking)
        return self._tokenizers[key]


def where_served(resources: PolicyResources, name: str, caller: str, policy: str | None = None) -> tuple[str, str]:
    """(base URL of the server that answers a player's calls, the policy's name there).

    name: ``TRAINED_POLICY`` or one of ``resources.frozen``. caller: which seat or actor of which task; of a policy's
    servers a caller always gets the same one. policy: which of the player's policies (``PolicyResources.policy_of``);
    None for the first. Raises PolicyUnavailable.
    """
    own = [one for one in resources.policies if one.seated_as == name and policy in (None, one.name)]
    served = own[0] if own else resources
    if not served.endpoints:
        raise PolicyUnavailable(
            f"the task wants {TRAINED_POLICY!r}, and {resources.resources_id} says that it is served nowhere"
        )
    return served.endpoints[seed_of(caller) % len(served.endpoints)], served.model


def load_chat_tokens(folder: Path, thinking: bool = False) -> ChatTokens:
    """The tokenizer in ``folder``; UnusableTokenizer names the remedy when it is not on this machine or unfit."""
    if not folder.is_dir():
        raise UnusableTokenizer(
            f"the folder {folder}, named with --tokenizer, is not on this machine: copy the model's tokenizer files "
            f"there, or leave --tokenizer out to use the tokenizer of the policy's server"
        )
    try:
        return ChatTokens.load(folder, thinking)
    except (OSError, ValueError) as error:
        raise UnusableTokenizer(f"the tokenizer in {folder} cannot be used: {error}") from error
