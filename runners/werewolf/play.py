"""Plays one attempt of a game rollout: reads its task and resources, and has the game played."""

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from runners.addresses import Addresses
from runners.errors import PolicyUnavailable, RouteRefused, UnusableTask
from runners.keys import ApiKeys
from runners.play import TurnSink
from runners.policy.resources import PublishedResources
from runners.policy.server import POLICY_PATIENCE_SECONDS
from runners.werewolf.game import get_preset
from store.client import StoreClient
from store.printable import printable
from store.protocol import AttemptedRollout, Rollout
from store.werewolf import GameTask, ResultSpan

if TYPE_CHECKING:
    from runners.werewolf.agent import WerewolfGames


class WerewolfPlay:
    """A ``runners.play.Play`` for Werewolf. One instance serves a whole runner process.

    tokenizer, policy_patience_seconds, keys: see ``WerewolfGames``.
    resources_patience_seconds: how long missing resources are waited for.
    addresses: that models may be called at; None: the defaults for the client's hub.
    """

    def __init__(
        self,
        client: StoreClient,
        tokenizer: Path | None = None,
        resources_patience_seconds: float = 60.0,
        policy_patience_seconds: float = POLICY_PATIENCE_SECONDS,
        keys: ApiKeys | None = None,
        addresses: Addresses | None = None,
    ):
        addresses = addresses or Addresses(client.server_address_root)
        self._resources = PublishedResources(client, resources_patience_seconds, addresses)
        self._settings = (addresses, tokenizer, policy_patience_seconds, keys)

    async def __call__(self, rollout: AttemptedRollout, on_turn: TurnSink) -> ResultSpan:
        """Play the rollout's game. Raises CannotPlay, naming the task, preset, resources, player or server at fault."""
        task = read_task(rollout)
        resources = await self._resources.of(rollout)
        try:
            return await self._games.play(task, resources, on_turn)
        except (PolicyUnavailable, RouteRefused):
            # The algorithm may have started again, and published the same version with another server.
            self._resources.forget(resources.resources_id)
            raise

    @cached_property
    def _games(self) -> "WerewolfGames":
        # AgentScope takes a second and 100 MB: a runner asks for its first game before.
        from runners.werewolf.agent import WerewolfGames

        return WerewolfGames(*self._settings)

    async def close(self) -> None:
        """Close all connections but the client's."""
        await self._resources.close()
        if "_games" in vars(self):
            await self._games.close()


def read_task(rollout: Rollout) -> GameTask:
    """The task in a rollout's input. Raises UnusableTask, which names the field or the preset at fault."""
    try:
        task = GameTask.decode(rollout.input)
        get_preset(task.preset, task.rules)
    except ValueError as error:
        reason = printable("; ".join(str(error).splitlines()))  # it quotes the input
        raise UnusableTask(f"rollout {rollout.rollout_id} cannot be played by this runner: {reason}") from error
    return task
