"""Clients of policy servers with their tokenizers, shared by the rollouts of a process.

A policy is the trained one, on any number of servers, or a frozen one.
"""

import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Generic, TypeVar

from runners.addresses import Addresses
from runners.errors import PolicyUnavailable, UnusableTokenizer
from runners.policy.chat_tokens import ChatTokens
from runners.policy.client import POLICY_TIMEOUT_SECONDS, PolicyClient, seed_of
from runners.policy.shared import Shared
from store.schema import TRAINED_POLICY, PolicyResources, Sampling

logger = logging.getLogger(__name__)

_RUNS_KEPT = 16
"""Runs whose clients and tokenizers stay, so that a runner that serves one run after another does not grow."""

Used = TypeVar("Used")


class Connections(Generic[Used]):
    """One client for each server, shared by rollouts.

    use: makes the value that callers get, from a new client, the run's name, the policy's name and its sampling.
    addresses, retry_seconds: see ``PolicyClient``.
    """

    def __init__(
        self,
        use: Callable[[PolicyClient, str, str, Sampling], Awaitable[Used]],
        addresses: Addresses,
        retry_seconds: float = POLICY_TIMEOUT_SECONDS,
    ):
        self._use = use
        self._addresses = addresses
        self._retry_seconds = retry_seconds
        self._runs: dict[str, Shared[Any, tuple[PolicyClient, Used]]] = {}  # the least recently used first

    async def get(self, resources: PolicyResources, name: str, caller: str, policy: str | None = None) -> Used:
        """The value for the server that answers a caller's calls of the policy ``name`` (``endpoint_of``)."""
        endpoint, model = endpoint_of(resources, name, caller, policy)
        # By run, since another run may serve another model at the same address and name.
        made = self._runs[resources.run_name] = self._runs.pop(resources.run_name, None) or Shared(self._make)
        if len(self._runs) > _RUNS_KEPT:
            await self._close(next(iter(self._runs)))
        _, used = await made.get((resources.run_name, name, endpoint, model, resources.sampling))
        return used

    async def close(self) -> None:
        while self._runs:
            await self._close(next(iter(self._runs)))

    async def _close(self, run_name: str) -> None:
        for server, _ in await self._runs.pop(run_name).close():
            await server.close()

    async def _make(self, key: tuple[str, str, str, str, Sampling]) -> tuple[PolicyClient, Used]:
        run_name, name, endpoint, model, sampling = key
        server = PolicyClient(endpoint, model, sampling.temperature, self._addresses, self._retry_seconds)
        try:
            return server, await self._use(server, run_name, name, sampling)
        except BaseException:
            await server.close()
            raise


class Policies:
    """Clients and tokenizers of policies; one tokenizer for all servers of a policy.

    tokenizer: folder of the trained policy's tokenizer; None takes the folder that the policy's server names, if it is
        on this machine, and else the tokenizer of the server itself. A frozen policy's is always found that way.
    addresses, retry_seconds: see ``PolicyClient``.
    """

    def __init__(
        self,
        addresses: Addresses,
        tokenizer: Path | None = None,
        retry_seconds: float = POLICY_TIMEOUT_SECONDS,
    ):
        self._tokenizer = tokenizer
        self._connections = Connections(self._with_tokens, addresses, retry_seconds)
        self._tokenizers = Shared(_load, _RUNS_KEPT)

    async def serving(
        self, resources: PolicyResources, name: str = TRAINED_POLICY, seat: str = "", policy: str | None = None
    ) -> tuple[PolicyClient, ChatTokens]:
        """The client and the tokenizer with which a seat plays the policy ``name``. seat: "game/seat".

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
                f"the policy of {resources.resources_id} has no server, and its tokenizer folder {folder} does not "
                f"exist on this machine: copy the model's tokenizer files here and set --tokenizer to their folder"
            )
        return await self._tokenizers.get((resources.run_name, folder, resources.sampling.thinking))

    async def close(self) -> None:
        await self._connections.close()
        await self._tokenizers.close()

    async def _with_tokens(
        self, server: PolicyClient, run_name: str, name: str, sampling: Sampling
    ) -> tuple[PolicyClient, ChatTokens]:
        own = self._tokenizer if name == TRAINED_POLICY else None
        folder = own or Path(await server.model_folder())
        if own is None and not folder.is_dir():
            logger.info("%s is not on this machine: using the tokenizer at %s", folder, server.endpoint)
            tokens = await ChatTokens.served(server, sampling.thinking)
        else:
            tokens = await self._tokenizers.get((run_name, folder, sampling.thinking))
        server.stop_token_ids = (tokens.end_of_turn,)
        return server, tokens


async def _load(key: tuple[str, Path, bool]) -> ChatTokens:
    _, folder, thinking = key
    logger.info("tokenizer from %s", folder)
    return await ChatTokens.load(folder, thinking)


def endpoint_of(resources: PolicyResources, name: str, caller: str, policy: str | None = None) -> tuple[str, str]:
    """(base URL of the server that answers a player's calls, the policy's name there).

    name: ``TRAINED_POLICY`` or one of ``resources.frozen``. caller: a task's seat or actor, which always gets the same
    server, for its prefix cache. policy: one of the player's policies (``PolicyResources.policy_of``); None for the
    first. Raises PolicyUnavailable.
    """
    own = [one for one in resources.policies if one.seated_as == name and policy in (None, one.name)]
    served = own[0] if own else resources
    if not served.endpoints:
        raise PolicyUnavailable(
            f"the task uses {TRAINED_POLICY!r}, but {resources.resources_id} has no server of it; for an agent's "
            f"prompts, give algo.find_best_prompt --endpoint and --model"
        )
    return served.endpoints[seed_of(caller) % len(served.endpoints)], served.model
