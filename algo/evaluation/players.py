"""Serves players for games without training: the hub, the policy and frozen policies."""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from algo.rollouts.queue import RolloutQueue
from algo.rollouts.resources import policy_resources
from algo.run.folder import OpenedRun, cancel_on_signals
from algo.serving.policies import open_frozen
from algo.serving.server_group import ServerGroup
from algo.werewolf.resources import game_resources
from configs.section import ConfigError
from configs.sections.opponents import INITIAL_POLICY
from store.client import connect
from store.schema import TRAINED_POLICY, PolicyResources
from store.werewolf import GAME


@dataclass(frozen=True)
class ServedPlayers:
    """check_alive: called while games are played (``RolloutQueue.watch``); raises if a policy has no server left."""

    games: RolloutQueue
    resources: PolicyResources
    check_alive: Callable[[], Awaitable[None]]


@asynccontextmanager
async def serve_players(
    opened: OpenedRun, players: Collection[str], model: Path | None
) -> AsyncIterator[ServedPlayers]:
    """Serve players within the context; leaving it cancels open games.

    players: names; "policy" is ``model``, "initial" is ``model.path``; brains need no server.
    model: a folder; None for ``model.path`` or, with ``serving.mode=attach``, the served model.
    Raises StoreUnreachable, ServingError, and ConfigError for weights that do not fit an attached vLLM.
    """
    config = opened.config
    published = game_resources(config)
    cancel_on_signals()
    async with AsyncExitStack() as stack:
        client = connect(config.store.url, config.store.retry_seconds)
        stack.push_async_callback(client.close)
        await client.wait_until_reachable()
        games = RolloutQueue(client, GAME, config.rollout, opened.resumption)
        serving = None
        if TRAINED_POLICY in players:
            # A folder has whole weights, also of a run with adapters.
            path = model if model is not None and config.serving.mode == "start" else config.model.path
            whole = config.model.model_copy(update={"path": path, "lora_rank": 0})
            served = config.model_copy(update={"model": whole})
            serving = await stack.enter_async_context(await ServerGroup.open(served, takes_weights=model is not None))
            if model is not None and config.serving.mode == "attach":
                try:
                    await serving.push_weights(model, 0)
                except ValueError as error:  # rejected before any weight changed
                    raise ConfigError(str(error)) from error

        named = [name for name in players if name in (INITIAL_POLICY, *config.frozen)]
        frozen = await stack.enter_async_context(open_frozen(config, named))

        async def check_alive() -> None:
            await frozen.check_alive()
            if serving is not None and await serving.check_alive():
                await games.update_endpoints(serving.endpoints)

        stack.push_async_callback(games.cancel_open)
        name = serving.model if serving else str(model or config.model.path)
        endpoints = serving.endpoints if serving else ()
        run_id, policies = opened.state.run_id, frozen.policies
        resources = policy_resources(config, run_id, name, endpoints, policies=policies, **published)
        yield ServedPlayers(games, resources, check_alive)
