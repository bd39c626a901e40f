"""Plays one attempt of a game: reads its task and resources, then runs the game."""

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from runners.addresses import Addresses
from runners.errors import CannotPlay, UnusableTask
from runners.keys import ApiKeys
from runners.play import TurnSink
from runners.policy.client import POLICY_TIMEOUT_SECONDS
from runners.policy.resources import PublishedResources
from runners.werewolf.game import get_preset
from store.client import StoreClient
from store.printable import printable
from store.protocol import AttemptedRollout, Rollout
from store.werewolf import GameTask, ResultSpan

if TYPE_CHECKING:
    from runners.werewolf.agent import WerewolfGames


class WerewolfPlay:
    """A ``runners.play.Play`` for Werewolf. One instance serves a whole runner process.

    tokenizer, policy_timeout_seconds, keys: see ``WerewolfGames``.
    addresses: the allowed addresses of models; None: the defaults for the client's hub.
    """

    def __init__(
        self,
        client: StoreClient,
        tokenizer: Path | None = None,
        policy_timeout_seconds: float = POLICY_TIMEOUT_SECONDS,
        keys: ApiKeys | None = None,
        addresses: Addresses | None = None,
    ):
        addresses = addresses or Addresses(client.server_address_root)
        self._resources = PublishedResources(client, addresses)
        self._settings = (addresses, tokenizer, policy_timeout_seconds, keys)

    async def __call__(self, rollout: AttemptedRollout, on_turn: TurnSink) -> ResultSpan:
        """Play the rollout's game. Raises CannotPlay, naming the task, preset, resources, player or server at fault."""
        task = read_task(rollout)
        resources = await self._resources.of(rollout)
        try:
            return await self._games.play(task, resources, on_turn)
        except CannotPlay:
            # The algorithm may have restarted and published the same version with other servers and players.
            self._resources.forget(resources.resources_id)
            raise

    @cached_property
    def _games(self) -> "WerewolfGames":
        # Imports AgentScope (a second, 100 MB) only after the first dequeue.
        from runners.werewolf.agent import WerewolfGames

        return WerewolfGames(*self._settings)

    async def close(self) -> None:
        """Close all connections but the client's."""
        await self._resources.close()
        if "_games" in vars(self):
            await self._games.close()


def read_task(rollout: Rollout) -> GameTask:
    """The task in a rollout's input. Raises UnusableTask, naming the field or the preset at fault."""
    try:
        task = GameTask.decode(rollout.input)
        get_preset(task.preset, task.rules)
    except ValueError as error:
        reason = printable("; ".join(str(error).splitlines()))  # it contains parts of the input
        raise UnusableTask(f"rollout {rollout.rollout_id} cannot be played by this runner: {reason}") from error
    return task
