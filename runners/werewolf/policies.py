"""The servers of the trained policy and the tokenizers that go with them, shared by all games of a process."""

import asyncio
from pathlib import Path

from runners.errors import UnusableTokenizer
from runners.werewolf.chat_tokens import ChatTokens
from runners.werewolf.policy_model import PolicyServer
from store.schema import PolicyResources


class Policies:
    """One connection and one tokenizer for each endpoint, however many games use it.

    tokenizer: folder of the policy's tokenizer; None asks the policy's server where its model lies.
    """

    def __init__(self, tokenizer: Path | None = None):
        self._tokenizer = tokenizer
        self._policies: dict[tuple[str, str, float], tuple[PolicyServer, ChatTokens]] = {}
        self._loading = asyncio.Lock()

    async def serving(self, resources: PolicyResources) -> tuple[PolicyServer, ChatTokens]:
        """The server and the tokenizer of a policy. Raises UnusableTokenizer and PolicyUnavailable."""
        key = (resources.endpoint, resources.model, resources.sampling.temperature)
        async with self._loading:  # many games start at once; connect and load only once
            if key not in self._policies:
                server = PolicyServer(*key)
                try:
                    folder = self._tokenizer or Path(await server.model_folder())
                    self._policies[key] = server, await asyncio.to_thread(load_chat_tokens, folder)
                except BaseException:
                    await server.close()
                    raise
        return self._policies[key]

    async def close(self) -> None:
        """Close the connections."""
        for server, _ in self._policies.values():
            await server.close()


def load_chat_tokens(folder: Path) -> ChatTokens:
    """The tokenizer in ``folder``; UnusableTokenizer names the remedy when it is not on this machine or unfit."""
    if not folder.is_dir():
        raise UnusableTokenizer(
            f"the policy's tokenizer folder {folder} is not on this machine: copy the model's tokenizer files here and "
            f"name their folder with --tokenizer"
        )
    try:
        return ChatTokens.load(folder)
    except (OSError, ValueError) as error:
        raise UnusableTokenizer(f"the tokenizer in {folder} cannot be used: {error}") from error
