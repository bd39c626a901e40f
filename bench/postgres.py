"""The hub on PostgreSQL, the hub on SQLite and the stock hub, in three parts.

``loads``: agentlightning's six benchmark loads; ``kills``: kills among ten thousand open games; ``kept``: cost of a
game among many kept ones. ``scale`` 1 is the full size; the default is for two cores. All hubs get the same requests,
from runners without model calls.
"""

import asyncio
import random
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import asyncpg
import psutil
from rich.table import Table

from bench.light_runners import LightRunners
from bench.tables import table_of
from store.client import connect
from store.finished import FinishedRollouts
from store.hub.database.postgres import SCHEMA
from store.protocol import EnqueueRolloutRequest, RolloutConfig
from tests.support.hub.hub_process import HubProcess, StockHub
from tests.support.hub.postgres_server import PostgresServer, discard, new_server

GAMES_OPEN, RUNNERS, TURNS, KILLS = 10_000, 1000, 3, 6
KEPT = (1_000, 10_000, 100_000)
LOADS = (
    # runners, turns, games; rollouts a second in agentlightning 0.3.0's changelog, in memory and MongoDB
    ("minimal", 32, 6, 256, 9.06, 8.71),
    ("medium", 100, 10, 1000, 23.26, 32.79),
    ("mid-high", 300, 6, 2048, 24.42, 40.24),
    ("large", 1000, 3, 8192, 14.60, 50.05),
    ("long queue", 256, 4, 4096, 30.86, 57.01),
    ("heavy trace", 512, 20, 1024, 13.28, 29.41),
)


class Cost(NamedTuple):
    """Games a second, and CPU milliseconds a game of hub and database."""

    games_per_second: float
    hub: float
    database: float


def _cpu(pid: int) -> float:
    """CPU milliseconds of a process and its children, ended ones included."""
    process = psutil.Process(pid)
    total = sum(process.cpu_times()[:4])
    for child in process.children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            total += sum(child.cpu_times()[:2])
    return 1000 * total


@asynccontextmanager
async def _hub(kind: str, server: PostgresServer, *options: str) -> AsyncIterator[HubProcess]:
    with tempfile.TemporaryDirectory() as name:
        folder, quiet = Path(name), ("--log-level", "ERROR")
        if kind == "postgres":
            url = await server.make_database(f"bench{time.monotonic_ns()}")
            hub = HubProcess(folder, *quiet, "--db", url, *options)
            hub.database = url
        else:
            hub = StockHub(folder) if kind == "stock" else HubProcess(folder, *quiet)
        await hub.start()
        try:
            yield hub
        finally:
            hub.stop()


@asynccontextmanager
async def _played(
    hub: HubProcess, games: int, runners: int, turns: int, config: RolloutConfig | None = None
) -> AsyncIterator[tuple[LightRunners, list[str]]]:
    """Runners play games within the block; it ends when all games have finished."""
    client, light, ids = connect(hub.url, 300), LightRunners(hub.url, runners, turns), []
    for first in range(0, games, 1000):
        tasks = [EnqueueRolloutRequest(input=n, config=config) for n in range(first, min(games, first + 1000))]
        ids += [one.rollout_id for one in await client.enqueue_many_rollouts(tasks)]
    running = asyncio.create_task(light.run())
    yield light, ids
    finished = FinishedRollouts(client)
    while len(found := await finished.poll(ids)) < games:
        await asyncio.sleep(0.5)
    assert {one.status for one in found} == {"succeeded"}
    light.stop.set()
    await running
    await client.close()


async def _cost(hub: HubProcess, games: int, runners: int, turns: int, server: PostgresServer | None) -> Cost:
    """server: of the database, if any."""
    pids = [hub.process.pid, *([int((server.data / "postmaster.pid").read_text().split()[0])] if server else [])]
    before, started = [_cpu(pid) for pid in pids], time.perf_counter()
    async with _played(hub, games, runners, turns):
        pass
    seconds = time.perf_counter() - started
    used = [(_cpu(pid) - first) / games for pid, first in zip(pids, before, strict=True)]
    return Cost(games / seconds, *used, *([] if server else [0.0]))


async def _six_loads(scale: float, server: PostgresServer) -> Table:
    rows = []
    for name, runners, turns, games, in_memory, mongo in LOADS:
        rates = {}
        for kind, options in (("stock", ()), ("sqlite", ()), ("postgres", ()), ("postgres", ("--workers", "2"))):
            async with _hub(kind, server, *options) as hub:
                of = server if kind == "postgres" else None
                cost = await _cost(hub, max(40, round(games * scale)), max(4, round(runners * scale)), turns, of)
            rates[kind] = cost.games_per_second
            load = f"{name}, {runners} x {turns}" if kind == "stock" else ""
            published = f"MongoDB {mongo / in_memory:.2f}x" if kind == "stock" else ""
            ratio = f"{rates[kind] / rates['stock']:.2f}x"
            rows.append((load, " ".join((kind, *options)), *(f"{figure:.1f}" for figure in cost), ratio, published))
    columns = ("load: runners x turns", "hub", "games/s", "hub ms", "db ms", "of stock", "published of stock")
    return table_of(f"agentlightning's own loads, scaled by {scale:g}; CPU per game", columns, rows)


async def _with_kills(scale: float, server: PostgresServer) -> Table:
    """Raises AssertionError if anything is lost or duplicated."""
    games, runners, chance = round(GAMES_OPEN * scale), max(4, round(RUNNERS * scale)), random.Random(1)
    config = RolloutConfig(unresponsive_seconds=20, max_attempts=50, retry_condition=["unresponsive", "timeout"])
    async with _hub("postgres", server, "--workers", "2") as hub:
        started = time.perf_counter()
        async with _played(hub, games, runners, TURNS, config) as (light, ids):
            for kill in range(1, KILLS + 1):
                while len(light.ended) < games * kill // (KILLS + 2):
                    await asyncio.sleep(0.05)
                if kill % 3:
                    chance.choice(psutil.Process(hub.process.pid).children()).kill()
                else:
                    server.kill()
                    await asyncio.to_thread(server.start)
        seconds = time.perf_counter() - started
        assert set(light.ended) == set(ids) and set(light.ended.values()) == {1}, "a game is lost or was ended twice"
        kept = await asyncpg.connect(hub.database, server_settings={"search_path": SCHEMA})
        sql = "SELECT rollout_id, attempt_id, count(*), max(sequence_id) FROM spans GROUP BY 1, 2"
        stored = {(one, attempt): (count, last) for one, attempt, count, last in await kept.fetch(sql)}
        assert await kept.fetchval("SELECT count(*) FROM rollouts") == games
        await kept.close()
        for key, count in light.spans.items():
            assert stored[key][0] == stored[key][1] >= count, f"spans of {key} are lost or duplicated"
    figures = (games, runners, KILLS, f"{games / seconds:.1f}", 0, 0, len(stored) - games)
    columns = ("open games", "runners", "kills", "games/s", "lost", "doubled", "played again")
    title = "Kills of hub processes (two in three) and of the database"
    return table_of(title, columns, [[str(figure) for figure in figures]])


_FILL = """
INSERT INTO rollouts (rollout_id, start_time, end_time, status, document)
SELECT 'old-' || n, n, n + 1, 'succeeded', json_build_object('rollout_id', 'old-' || n, 'input', 1, 'start_time', n,
    'end_time', n + 1, 'status', 'succeeded', 'config', json_build_object())::text
FROM generate_series({first}::bigint, {last}::bigint) AS n;
INSERT INTO attempts (rollout_id, attempt_id, sequence_id, start_time, end_time, status, document)
SELECT 'old-' || n, 'at-1', 1, n, n + 1, 'succeeded', json_build_object('rollout_id', 'old-' || n, 'attempt_id', 'at-1',
    'sequence_id', 1, 'start_time', n, 'end_time', n + 1, 'status', 'succeeded')::text
FROM generate_series({first}::bigint, {last}::bigint) AS n;
INSERT INTO spans (rollout_id, attempt_id, sequence_id, trace_id, span_id, name, document)
SELECT 'old-' || n, 'at-1', s, '01', 's' || s, 'turn', repeat('x', 800)
FROM generate_series({first}::bigint, {last}::bigint) AS n, generate_series(1, 6) AS s;
ANALYZE
"""


async def _among_kept(scale: float, server: PostgresServer) -> Table:
    rows, totals, filled = [], [], 0
    async with _hub("postgres", server) as hub:
        kept = await asyncpg.connect(hub.database, server_settings={"search_path": SCHEMA})
        await _cost(hub, 60, 8, TURNS, server)  # warm
        for number in (round(number * scale) for number in KEPT):
            await kept.execute(_FILL.format(first=filled + 1, last=number))
            filled = number
            cost = await _cost(hub, 150, 8, TURNS, server)
            totals.append(cost.hub + cost.database)
            rows.append((str(number), *(f"{figure:.1f}" for figure in cost), f"{totals[-1] / totals[0]:.2f}x"))
        await kept.close()
    columns = ("games kept", "games/s", "hub ms", "db ms", "of the first")
    return table_of("CPU of a game by the number of kept games", columns, rows)


def _measured(part: Callable[[float, PostgresServer], Awaitable[Table]]) -> Callable[[float], Table]:
    def measure(scale: float) -> Table:
        server = new_server("max_connections=200", "shared_buffers=256MB").start()
        try:
            return asyncio.run(part(scale, server))
        finally:
            discard(server)

    return measure


PARTS: Mapping[str, Callable[[float], Table]] = {
    "loads": _measured(_six_loads),
    "kills": _measured(_with_kills),
    "kept": _measured(_among_kept),
}
"""Name -> part, each with its own database server."""
