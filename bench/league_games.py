"""What meeting one's past costs: games of the tiny model against a pool of 8 past selves beside games against itself.

The same deals in turns, with adapters (all on the policy's server) and with whole weights (a server for the pool).
"""

import asyncio
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from algo.league.results import past_name
from algo.serving.launch import Launch, frozen_launch, policy_launches, pool_servers
from algo.serving.servers import Servers
from configs.loading import load_config
from configs.schema import Config
from runners.addresses import Addresses
from runners.policy.chat_tokens import ChatTokens
from runners.policy.server import PolicyServer
from runners.werewolf.game import Side
from store.schema import TRAINED_POLICY

# isort: split
from algo.machine.ports import free_port
from bench.policy_games import play_deal
from bench.tables import table_of
from tests.support.real_vllm import of_length
from tests.support.small_models import random_adapters

PRESET, POOL = "5p_tiny", 8
GAMES, AT_ONCE, TURNS_OF_EACH = 24, 8, 2
LIMITS = {"context_tokens": 3072, "reply_tokens": 20}
RANK = 8


@dataclass
class Count:
    """Of games that were played in one way. seconds: wall time of them."""

    games: int = 0
    calls: int = 0
    seconds: float = 0.0


class Player:
    """Plays deals with the policy on one side and whoever ``others`` names on the other, in turns."""

    def __init__(self, tokens: ChatTokens, policy: PolicyServer, others: Sequence[PolicyServer]):
        self._tokens = tokens
        self._policy, self._others = policy, others

    async def play(self, first: int, count: Count) -> None:
        """``GAMES`` deals from a number on, ``AT_ONCE`` at a time."""
        room, began = asyncio.Semaphore(AT_ONCE), time.monotonic()

        async def one(number: int) -> None:
            async with room:
                await self._game(number, count)

        async with asyncio.TaskGroup() as games:
            for number in range(first, first + GAMES):
                games.create_task(one(number))
        count.seconds += time.monotonic() - began

    async def _game(self, number: int, count: Count) -> None:
        other = self._others[number % len(self._others)]
        own = (Side.WOLF, Side.GOOD)[number // len(self._others) % 2]
        servers = {side: self._policy if side is own else other for side in Side}
        count.calls += len(await play_deal(PRESET, number, LIMITS, self._tokens, servers))
        count.games += 1


async def _compare(model: Path, policy: PolicyServer, past: Sequence[PolicyServer]) -> Mapping[str, Count]:
    """Alone and with the pool in turns, the same deals in both; a few games before that warm the servers."""
    tokens = await ChatTokens.load(model)
    players = {"none": Player(tokens, policy, [policy]), "pool": Player(tokens, policy, past)}
    counts = {name: Count() for name in players}
    try:
        await asyncio.gather(*(player.play(10_000, Count()) for player in players.values()))
        for turn in range(TURNS_OF_EACH):
            for name in sorted(players, reverse=bool(turn % 2)):
                await players[name].play(1 + turn * GAMES, counts[name])
    finally:
        await asyncio.gather(*(server.close() for server in {policy, *past}))
    return counts


def _config(model: Path, *settings: str) -> Config:
    shape = of_length(**LIMITS)
    pool = ["league.every_steps=1", f"league.size={POOL}", "game.opponent=past", f"game.preset={PRESET}"]
    ports = [f"serving.port={free_port()}", "serving.mode=start"]
    return load_config(None, [f"model.path={model}", *shape, *pool, *ports, *settings])


async def _start(config: Config, stack: AsyncExitStack, launch: Launch | None = None) -> Servers:
    launches = policy_launches(config) if launch is None else [launch]
    return await stack.enter_async_context(await Servers.start(config, launches))


async def _adapters(model: Path, folder: Path) -> Mapping[str, Count]:
    config = _config(model, f"model.lora_rank={RANK}", f"model.lora_alpha={2 * RANK}", f"run.dir={folder}")
    names = [TRAINED_POLICY, *(past_name(version) for version in range(POOL))]
    folders = {name: random_adapters(folder / name, model, seed, RANK) for seed, name in enumerate(names)}
    async with AsyncExitStack() as stack:
        serving = await _start(config, stack)
        await serving.serve_adapters({name: folders[name] for name in names[1:]}, now=False)
        await serving.push_weights(folders[TRAINED_POLICY], POOL)
        endpoint = serving.endpoints[0]
        past = [PolicyServer(endpoint, name, 1.0, Addresses(endpoint)) for name in names[1:]]
        return await _compare(model, PolicyServer(endpoint, serving.model, 1.0, Addresses(endpoint)), past)


async def _whole(model: Path, folder: Path) -> Mapping[str, Count]:
    config = _config(model, f"run.dir={folder}")
    (settings,) = pool_servers(config)
    async with AsyncExitStack() as stack:
        serving = await _start(config, stack)
        past = await _start(config, stack, frozen_launch(config, "past-1", settings))
        at = [
            PolicyServer(each.endpoints[0], each.model, 1.0, Addresses(each.endpoints[0])) for each in (serving, past)
        ]
        return await _compare(model, at[0], at[1:])


def measure(model: Path) -> Table:
    """Start the servers, play both ways."""
    rows = []
    ways = (("adapters", _adapters, f"a pool of {POOL}"), ("whole", _whole, "one of a pool, on a server of its own"))
    for weights, play, against in ways:
        with tempfile.TemporaryDirectory() as folder:
            counts = asyncio.run(play(model, Path(folder)))
        rates = {name: 3600 * count.games / count.seconds for name, count in counts.items()}
        for name, label in (("none", "itself"), ("pool", against)):
            count, ratio = counts[name], f"{rates[name] / rates['none']:.2f}"
            figures = (f"{figure:.1f}" for figure in (count.calls / count.games, count.calls / count.seconds))
            rows.append((f"{weights}, against {label}", f"{rates[name]:.0f}", *figures, ratio))
    title = f"{PRESET}: {GAMES * TURNS_OF_EACH} games a row, {AT_ONCE} at once, the same deals"
    columns = ("weights", "games per hour", "calls a game", "calls per second", "ratio of games")
    return table_of(title, columns, rows)
