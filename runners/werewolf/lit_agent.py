"""Werewolf as an agentlightning ``LitAgent``: for agentlightning's own ``LitAgentRunner`` and ``Trainer``.

For training use ``python -m runners.werewolf``: many games at once, spans uploaded during the game, every end reported.
This agent plays one game at a time in agentlightning's runners, with the same spans::

    from agentlightning import Baseline, OtelTracer, Trainer

    policy = PolicyResources(run_name="dev", version=0, endpoints=("http://127.0.0.1:8000/v1",), model="policy")
    resources = lightning_resources(policy)
    trainer = Trainer(algorithm=Baseline(), tracer=OtelTracer(), initial_resources=resources, n_runners=1)
    trainer.dev(WerewolfLitAgent(), train_dataset=[task.encode() for task in game_tasks])

or, against a hub in which games are queued::

    runner = LitAgentRunner(tracer=OtelTracer(), max_rollouts=1)
    with runner.run_context(agent=WerewolfLitAgent(), store=LightningStoreClient("http://127.0.0.1:4747"), worker_id=0):
        await runner.iter()

Limits of agentlightning's runner: it needs a real tracer (not ``DummyTracer``). It stores spans at the end of a game,
so ``RolloutConfig.unresponsive_seconds`` must cover a whole game. It reports a cancelled game as succeeded, without
spans; a game without resources times out.
"""

import asyncio
import time
import weakref
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

from agentlightning import (
    AttemptedRollout,
    LightningStoreClient,
    LitAgent,
    LitAgentRunner,
    NamedResources,
    Rollout,
    Span,
)
from pydantic import TypeAdapter

from runners.addresses import Addresses
from runners.attempt_spans import AttemptSpans
from runners.errors import MissingResources
from runners.keys import ApiKeys
from runners.werewolf.agent import WerewolfGames
from runners.werewolf.werewolf_play import read_task
from store import protocol
from store.schema import VERSION_SEPARATOR, PolicyResources


class WerewolfLitAgent(LitAgent[dict[str, Any]]):
    """Plays one ``GameTask`` per rollout; returns its turn spans and, last, its result span.

    tokenizer, keys: see ``WerewolfGames``.
    addresses: the allowed addresses of models; None: the defaults for the runner's hub, which is this machine for a
        store in memory.
    """

    def __init__(self, tokenizer: Path | None = None, keys: ApiKeys | None = None, addresses: Addresses | None = None):
        super().__init__()
        self._tokenizer = tokenizer
        self._keys = keys
        self._addresses = addresses
        # A trainer may run one agent in several threads, one event loop each; connections belong to a loop.
        self._games: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[WerewolfGames, AsyncGenerator[None]]]
        self._games = weakref.WeakKeyDictionary()

    async def rollout_async(self, task: dict[str, Any], resources: NamedResources, rollout: Rollout) -> list[Span]:
        """Play one game. Raises CannotPlay, naming the task, preset, resources, address, player or server at fault.

        task: a ``GameTask``, encoded. resources: as of ``lightning_resources``.
        """
        if not isinstance(rollout, AttemptedRollout):
            raise TypeError(f"rollout {rollout.rollout_id} has no attempt; a runner must start one")
        spans: list[protocol.Span] = []
        attempt = AttemptSpans(spans.append, (rollout.rollout_id, rollout.attempt.attempt_id))
        game, policies = read_task(rollout), _decode(rollout, resources)
        addresses = self._addresses or Addresses(self._hub())
        await addresses.check(policies)
        result = await (await self._games_here(addresses)).play(game, policies, attempt.add_turn)
        attempt.add_result(result, time.time())
        return [Span.from_attributes(**dict(span)) for span in spans]

    async def close(self) -> None:
        """Close the connections of this event loop; later games open new ones."""
        if here := self._games.pop(asyncio.get_running_loop(), None):
            await here[1].aclose()

    def _hub(self) -> str:
        store = self.runner.get_store() if isinstance(self.runner, LitAgentRunner) else None
        return store.server_address_root if isinstance(store, LightningStoreClient) else "http://localhost"

    async def _games_here(self, addresses: Addresses) -> WerewolfGames:
        loop = asyncio.get_running_loop()
        if loop not in self._games:
            games = WerewolfGames(addresses, self._tokenizer, keys=self._keys)
            self._games[loop] = games, _closing(games)
            await anext(self._games[loop][1])
        return self._games[loop][0]


async def _closing(games: WerewolfGames) -> AsyncGenerator[None]:
    """Close them with the event loop, since a trainer does not announce its end."""
    try:
        yield
    finally:
        await games.close()


def lightning_resources(policy: PolicyResources) -> NamedResources:
    """A policy in agentlightning's types, for its stores and trainers."""
    return TypeAdapter(NamedResources).validate_python(policy.encode(), from_attributes=True)


def _decode(rollout: Rollout, resources: NamedResources) -> PolicyResources:
    resources_id = rollout.resources_id
    if resources_id is None:
        raise MissingResources(f"rollout {rollout.rollout_id} has no resources_id, so its policy's version is unknown")
    if VERSION_SEPARATOR not in resources_id:  # a trainer calls its initial resources "default"
        resources_id = f"{resources_id}{VERSION_SEPARATOR}{0:06d}"
    update = dict(resources_id=resources_id, resources=resources, create_time=0.0, update_time=0.0, version=1)
    try:
        return PolicyResources.decode(protocol.ResourcesUpdate.model_validate(update, from_attributes=True))
    except ValueError as error:
        raise MissingResources(str(error)) from error
