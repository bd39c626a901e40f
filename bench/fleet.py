"""Runners: games per second and memory of ours, many games a process and bulk upload, against agentlightning's
``LitAgentRunner``, one game a process and one request a span.

Each side uses its own hub: ours writes to disk, the other is in memory.
"""

import asyncio
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from pathlib import Path

from rich.table import Table

from bench.recorded import task_of
from bench.runner import AT_ONCE, PRESET, SAYS, TURNS
from bench.tables import ratio_rows, table_of
from store.client import connect
from store.protocol import EnqueueRolloutRequest
from store.schema import PolicyResources
from tests.support.hub.hub_process import HubProcess, StockHub

OUR_GAMES, STOCK_GAMES, HELD_GAMES = 160, 5, 32
RESOURCES = PolicyResources(run_name="bench", version=0, endpoints=("http://127.0.0.1:1/v1",), model="policy")


async def _said(process: Process) -> str:
    async for line in process.stdout:
        if line.startswith(SAYS):
            return line.removeprefix(SAYS).decode().strip()
    raise RuntimeError(f"a runner ended with {await process.wait()}")


async def _measured(hub: HubProcess, kind: str, model_folder: Path, games: int, processes: int = 1) -> float:
    """Games per second; for a kind that holds its games, private megabytes of the process.

    games: of each process.
    """
    await hub.start()
    runners = []
    try:
        client = connect(hub.url)
        await client.update_resources(RESOURCES.resources_id, RESOURCES.encode())
        tasks = [task_of(PRESET, seed).encode() for seed in range(games * processes)]
        await client.enqueue_many_rollouts(
            [EnqueueRolloutRequest(input=t, mode="train", resources_id=RESOURCES.resources_id) for t in tasks]
        )
        command = (sys.executable, "-m", "bench.runner", kind, hub.url, str(model_folder), str(games))
        for _ in range(processes):
            runners.append(await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE))
        for runner in runners:
            await _said(runner)
        for runner in runners:
            runner.stdin.write(b"\n")
        said = [await _said(runner) for runner in runners]
        if kind.endswith("-held"):
            return float(said[0])
        rollouts = await client.query_rollouts()
        assert [rollout.status for rollout in rollouts] == ["succeeded"] * len(tasks)
        assert len(await client.query_spans(rollouts[-1].rollout_id)) == TURNS + 1
        attempts = [rollout.attempt for rollout in rollouts]
        return len(tasks) / (max(one.end_time for one in attempts) - min(one.start_time for one in attempts))
    finally:
        await client.close()
        for runner in runners:
            runner.kill()
            await runner.wait()
        hub.kill()


def measure(model_folder: Path) -> Table:
    def measured(hub: type[HubProcess], *options) -> float:
        with tempfile.TemporaryDirectory() as folder:
            return asyncio.run(_measured(hub(Path(folder)), *options))

    ours = measured(HubProcess, "ours", model_folder, OUR_GAMES)
    stock = measured(StockHub, "stock", model_folder, STOCK_GAMES, AT_ONCE)
    held = measured(HubProcess, "ours-held", model_folder, HELD_GAMES) / HELD_GAMES
    stock_held = measured(StockHub, "stock-held", model_folder, 1)
    title = (
        f"Runners, {TURNS} turns a game, {AT_ONCE} games at once: one process and bulk upload, against "
        f"agentlightning's LitAgentRunner in {AT_ONCE} processes and a request a span"
    )
    figures = (
        ("games/s through the hub", ours, stock),
        (f"MB per concurrent game, {HELD_GAMES} in a process against one", held, stock_held),
    )
    return table_of(title, ("what", "ours", "LitAgentRunner", "ours / other"), ratio_rows(figures, ".1f"))
