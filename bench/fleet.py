"""Runners: games per second and memory of ours, which play many games a process and upload in bulk, against
agentlightning's own ``LitAgentRunner``, one game a process and one request a span.

Games are replayed from a recorded one, so that what is measured is everything but the play. The hub of each side is
the one that comes with it: ours writes to disk, the other keeps everything in memory.
"""

import asyncio
import multiprocessing
import sys
import tempfile
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import psutil
from rich.table import Table

from runners.worker import Worker
from store.client import connect
from store.schema import PolicyResources
from store.token_spans import to_span
from store.werewolf import ResultSpan, TurnSpan

# isort: split
from agentlightning import EnqueueRolloutRequest, LightningStoreClient, LitAgent, LitAgentRunner, OtelTracer

from bench import held_games
from bench.recorded import record_game, scripted_task
from bench.tables import ratio_rows, table_of
from tests.support.hub import hub_process

PRESET, TURNS = "12p_sheriff", 60
AT_ONCE = 8
OUR_GAMES, STOCK_GAMES = 160, 40
MEMORY_GAMES = 32
RESOURCES = PolicyResources(run_name="bench", version=0, endpoints=("http://127.0.0.1:1/v1",), model="policy")

hub_process.preload("bench.fleet", "transformers.models.auto.tokenization_auto")


@dataclass(frozen=True)
class Game:
    """A recorded game."""

    turns: list[TurnSpan]
    result: ResultSpan


@dataclass(frozen=True)
class Cost:
    """Of one side: games per second, and CPU milliseconds per game of the hub and of all runner processes."""

    games_per_second: float
    hub_milliseconds: float
    runner_milliseconds: float


def _our_runner(url: str, used: Connection, game: Game, games: int) -> None:
    """One process, ``AT_ONCE`` games at a time."""

    async def replay(rollout, on_turn) -> ResultSpan:
        for turn in game.turns:
            on_turn(turn, 1.7e9, 1.7e9)
            await asyncio.sleep(0)
        return game.result

    async def run() -> None:
        client = connect(url)
        await Worker(client, replay, "ours", games_at_once=AT_ONCE, max_games=games).run()
        await client.close()

    asyncio.run(run())
    used.send(_cpu_seconds())


def _stock_runner(url: str, used: Connection, game: Game, games: int, number: int) -> None:
    """One process of several, one game at a time."""

    class Replay(LitAgent):
        async def rollout_async(self, task, resources, rollout):
            store = self.get_runner().get_store()
            for sequence_id, record in enumerate((*game.turns, game.result), start=1):
                ids = dict(rollout_id=rollout.rollout_id, attempt_id=rollout.attempt.attempt_id)
                await store.add_span(to_span(record, **ids, sequence_id=sequence_id, start_time=1.7e9, end_time=1.7e9))

    async def run() -> None:
        client = LightningStoreClient(url)
        runner = LitAgentRunner(OtelTracer(), max_rollouts=games)
        runner.init(Replay())
        runner.init_worker(number, client)
        await runner.iter()
        runner.teardown_worker(number)
        runner.teardown()
        await client.close()

    asyncio.run(run())
    used.send(_cpu_seconds())


def _cpu_seconds(process: psutil.Process | None = None) -> float:
    return sum((process or psutil.Process()).cpu_times()[:2])


async def _through(hub: hub_process.HubProcess, games: int, runners: list[tuple]) -> Cost:
    """What games cost that processes play, given as (function, its arguments behind the hub's address and a pipe)."""
    await hub.start()
    processes = []
    try:
        client = connect(hub.url)
        await client.update_resources(RESOURCES.resources_id, RESOURCES.encode())
        requests = [EnqueueRolloutRequest(input={}, mode="train", resources_id=RESOURCES.resources_id)] * games
        await client.enqueue_many_rollouts(requests)
        hub_used = _cpu_seconds(psutil.Process(hub.process.pid))
        ends = []
        for function, *arguments in runners:
            end, used = multiprocessing.Pipe(duplex=False)
            processes.append(hub_process.fork(function, hub.url, used, *arguments))
            used.close()
            ends.append(end)
        runners_used = sum([await asyncio.to_thread(end.recv) for end in ends])
        hub_used = _cpu_seconds(psutil.Process(hub.process.pid)) - hub_used
        rollouts = list(await client.query_rollouts())
        assert {rollout.status for rollout in rollouts} == {"succeeded"} and len(rollouts) == games
        assert len(await client.query_spans(rollouts[-1].rollout_id)) == TURNS + 1
        await client.close()
    finally:
        for process in processes:
            process.kill()
        hub.kill()
    seconds = max(r.attempt.end_time for r in rollouts) - min(r.attempt.start_time for r in rollouts)
    return Cost(games / seconds, hub_used / games * 1000, runners_used / games * 1000)


async def _held(hub: hub_process.HubProcess, kind: str, model_folder: Path, games: int) -> float:
    """Megabytes of a runner's process with so many games under way, without what it shares with others."""
    await hub.start()
    process = None
    try:
        client = connect(hub.url)
        await client.update_resources(RESOURCES.resources_id, RESOURCES.encode())
        tasks = [scripted_task(PRESET, seed) for seed in range(games)]
        await client.enqueue_many_rollouts(
            [
                EnqueueRolloutRequest(input=task.encode(), mode="train", resources_id=RESOURCES.resources_id)
                for task in tasks
            ]
        )
        await client.close()
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", held_games.__name__, kind, hub.url, model_folder, str(games)),
            stdout=asyncio.subprocess.PIPE,
        )
        async for line in process.stdout:
            if line.startswith(held_games.ANSWER.encode()):
                return float(line.split()[-1])
        raise RuntimeError(f"the process that was to hold games ended with {await process.wait()}")
    finally:
        if process is not None and process.returncode is None:
            process.kill()
            await process.wait()
        hub.kill()


async def _memory(model_folder: Path) -> tuple[float, float]:
    """Of ours with ``MEMORY_GAMES``, and of agentlightning's runner with one game."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "stock").mkdir()
        ours = await _held(hub_process.HubProcess(Path(folder)), held_games.OURS, model_folder, MEMORY_GAMES)
        stock = await _held(hub_process.StockHub(Path(folder) / "stock"), held_games.STOCK, model_folder, 1)
    return ours, stock


async def _costs(game: Game) -> tuple[Cost, Cost]:
    share = STOCK_GAMES // AT_ONCE
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "stock").mkdir()
        ours = await _through(hub_process.HubProcess(Path(folder)), OUR_GAMES, [(_our_runner, game, OUR_GAMES)])
        stock = await _through(
            hub_process.StockHub(Path(folder) / "stock"),
            STOCK_GAMES,
            [(_stock_runner, game, share, number) for number in range(AT_ONCE)],
        )
    return ours, stock


def measure(model_folder: Path) -> Table:
    """Play recorded games through both, and hold real ones in memory."""
    result, turns = asyncio.run(record_game(PRESET, 0, model_folder))
    assert len(turns) >= TURNS, "the recorded game is too short"
    ours, stock = asyncio.run(_costs(Game(turns[:TURNS], result)))
    together, alone = asyncio.run(_memory(model_folder))
    title = (
        f"Runners, {TURNS} turns a game, {AT_ONCE} games at once: one process and bulk upload, against "
        f"agentlightning's LitAgentRunner in {AT_ONCE} processes and a request a span"
    )
    figures = (
        ("games/s through the hub", ours.games_per_second, stock.games_per_second),
        ("CPU milliseconds of the hub a game", ours.hub_milliseconds, stock.hub_milliseconds),
        ("CPU milliseconds of the runners a game", ours.runner_milliseconds, stock.runner_milliseconds),
        (f"MB per concurrent game, {MEMORY_GAMES} in a process against one", together / MEMORY_GAMES, alone),
    )
    return table_of(title, ("what", "ours", "LitAgentRunner", "ours / other"), ratio_rows(figures, ".1f"))
