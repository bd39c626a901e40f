"""Cost of past selves: games of the tiny model against a pool of 8 past selves and against itself.

The same deals alternate, with adapters (all on the policy's server) and with whole weights (a server for the pool).
"""

import asyncio
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from rich.table import Table

from algo.league.results import past_name
from algo.machine.ports import free_port
from algo.serving.launch import frozen_launch, policy_launches, pool_servers
from algo.serving.server_group import ServerGroup
from bench.recorded import play_served, task_of
from bench.tables import table_of
from configs.loading import load_config
from configs.schema import Config
from runners.addresses import Addresses
from runners.policy.chat_tokens import ChatTokens
from runners.policy.client import PolicyClient
from runners.werewolf.game import Side
from store.schema import TRAINED_POLICY
from tests.support.real_vllm import of_length
from tests.support.small_models import random_adapters

PRESET, POOL = "5p_tiny", 8
GAMES, AT_ONCE, TURNS_OF_EACH = 24, 8, 2
LIMITS = {"context_tokens": 3072, "reply_tokens": 20}


async def _compare(model: Path, policy: PolicyClient, past: Sequence[PolicyClient]) -> Mapping[str, float]:
    """Seconds of the deals against itself and against the past, alternating; a few games warm the servers up."""
    tokens, seconds = await ChatTokens.load(model), defaultdict(float)

    async def play(first: int, others: Sequence[PolicyClient]) -> float:
        room, began = asyncio.Semaphore(AT_ONCE), time.monotonic()

        async def game(number: int) -> None:
            own = (Side.WOLF, Side.GOOD)[number // len(others) % 2]
            servers = {side: policy if side is own else others[number % len(others)] for side in Side}
            async with room:
                await play_served(task_of(PRESET, number, LIMITS), tokens, servers)

        await asyncio.gather(*map(game, range(first, first + GAMES)))
        return time.monotonic() - began

    try:
        await asyncio.gather(play(10_000, [policy]), play(10_000, past))
        for turn in range(TURNS_OF_EACH):
            for name, others in (("itself", [policy]), ("past", past))[:: 1 - turn % 2 * 2]:
                seconds[name] += await play(1 + turn * GAMES, others)
    finally:
        await asyncio.gather(*(server.close() for server in {policy, *past}))
    return seconds


def _config(model: Path, *settings: str) -> Config:
    league = ("league.every_steps=1", f"league.size={POOL}", "game.opponent=past", f"game.preset={PRESET}")
    serving = (f"serving.port={free_port()}", "serving.mode=start")
    return load_config(None, [f"model.path={model}", *of_length(**LIMITS), *league, *serving, *settings])


def _server(serving: ServerGroup, model: str) -> PolicyClient:
    return PolicyClient(serving.endpoints[0], model, 1.0, Addresses(serving.endpoints[0]))


async def _adapters(model: Path, folder: Path) -> Mapping[str, float]:
    config = _config(model, "model.lora_rank=8", "model.lora_alpha=16", f"run.dir={folder}")
    names = [TRAINED_POLICY, *(past_name(version) for version in range(POOL))]
    folders = {name: random_adapters(folder / name, model, seed, 8) for seed, name in enumerate(names)}
    async with await ServerGroup.start(config, policy_launches(config)) as serving:
        await serving.serve_adapters({name: folders[name] for name in names[1:]}, now=False)
        await serving.push_weights(folders[TRAINED_POLICY], POOL)
        policy, *past = (_server(serving, name) for name in (serving.model, *names[1:]))
        return await _compare(model, policy, past)


async def _whole(model: Path, folder: Path) -> Mapping[str, float]:
    config = _config(model, f"run.dir={folder}")
    (settings,) = pool_servers(config)
    async with AsyncExitStack() as stack:
        servers = []
        for launches in (policy_launches(config), [frozen_launch("past-1", settings)]):
            serving = await stack.enter_async_context(await ServerGroup.start(config, launches))
            servers.append(_server(serving, serving.model))
        return await _compare(model, servers[0], servers[1:])


def measure(model: Path) -> Table:
    rows = []
    ways = (("adapters", _adapters, f"a pool of {POOL}"), ("whole", _whole, "one of a pool, on a server of its own"))
    for weights, play, against in ways:
        with tempfile.TemporaryDirectory() as folder:
            seconds = asyncio.run(play(model, Path(folder)))
        for name, label in (("itself", "itself"), ("past", against)):
            rate = f"{3600 * GAMES * TURNS_OF_EACH / seconds[name]:.0f}"
            rows.append((f"{weights}, against {label}", rate, f"{seconds['itself'] / seconds[name]:.2f}"))
    title = f"{PRESET}: {GAMES * TURNS_OF_EACH} games a row, {AT_ONCE} at once, the same deals"
    return table_of(title, ("weights", "games per hour", "ratio of games"), rows)
