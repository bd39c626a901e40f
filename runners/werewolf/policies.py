"""The servers of the trained policy and the tokenizers that go with them, shared by all games of a process."""

import asyncio
import logging
from pathlib import Path

from runners.errors import UnusableTokenizer
from runners.werewolf.chat_tokens import ChatTokens
from runners.werewolf.policy_model import PolicyServer
from runners.werewolf.remote_tokenizer import remote_chat_tokens
from store.schema import PolicyResources

logger = logging.getLogger(__name__)


class Policies:
    """One connection and one tokenizer for each policy, however many games and versions of it are played.

    tokenizer: folder of the policy's tokenizer; None takes the folder that the policy's server names, if it is on
        this machine, and else the tokenizer of the server itself.
    """

    def __init__(self, tokenizer: Path | None = None):
        self._tokenizer = tokenizer
        self._policies: dict[tuple[str, str, str, float, bool], tuple[PolicyServer, ChatTokens]] = {}
        self._loading = asyncio.Lock()

    async def serving(self, resources: PolicyResources) -> tuple[PolicyServer, ChatTokens]:
        """The server and the tokenizer of a policy. Raises UnusableTokenizer and PolicyUnavailable."""
        sampling = resources.sampling
        # By run, since another run may serve another model at the same address under the same name.
        key = (
            resources.run_name,
            resources.endpoints[0],
            resources.model,
            sampling.temperature,
            sampling.thinking,
        )
        if key not in self._policies:  # looked up unlocked: a server that does not answer must not hold up the others
            async with self._loading:  # many games start at once; connect and load only once
                if key not in self._policies:
                    self._policies[key] = await self._connect(resources)
        return self._policies[key]

    async def _connect(self, resources: PolicyResources) -> tuple[PolicyServer, ChatTokens]:
        server = PolicyServer(resources.endpoints[0], resources.model, resources.sampling.temperature)
        try:
            tokens = await self._tokens_of(server, resources.sampling.thinking)
        except BaseException:
            await server.close()
            raise
        server.stop_token_ids = (tokens.end_of_turn,)
        return server, tokens

    async def close(self) -> None:
        """Close the connections."""
        for server, _ in self._policies.values():
            await server.close()

    async def _tokens_of(self, server: PolicyServer, thinking: bool) -> ChatTokens:
        folder = self._tokenizer or Path(await server.model_folder())
        if self._tokenizer is None and not folder.is_dir():
            logger.info("%s is not on this machine: asking the policy's server for every token", folder)
            return await remote_chat_tokens(server, thinking)
        logger.info("tokenizer from %s", folder)
        return await asyncio.to_thread(load_chat_tokens, folder, thinking)


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
