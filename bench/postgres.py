"""The hub on PostgreSQL beside the one on SQLite and the stock one, in three parts.

``loads``: agentlightning's own six; ``kills``: among ten thousand open games; ``kept``: what a game costs among many
kept ones. ``scale`` 1 is the whole; the default is for two cores. All hubs get the same requests, from runners that
wait for nobody.
"""

import asyncio
import random
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import asyncpg
import psutil
from agentlightning import EnqueueRolloutRequest, RolloutConfig
from rich.table import Table

from bench.light_runners import LightRunners
from store.client import connect
from store.finished import FinishedGames
from store.hub.database.postgres import SCHEMA
from tests.support.hub import hub_process
from tests.support.hub.postgres_server import PostgresServer, discard, new_server

GAMES_OPEN, RUNNERS, TURNS, KILLS = 10_000, 1000, 3, 6
KEPT = (1_000, 10_000, 100_000)
_SERVER = ("max_connections=200", "shared_buffers=256MB")


@dataclass(frozen=True)
class Load:
    """A row of agentlightning 0.3.0's changelog: with what it measured, in rollouts a second, in memory and MongoDB."""

    name: str
    runners: int
    turns: int
    batch: int
    in_memory: float
    mongo: float


LOADS = (
    Load("minimal, 32 x 6", 32, 6, 256, 9.06, 8.71),
    Load("medium, 100 x 10", 100, 10, 1000, 23.26, 32.79),
    Load("mid-high, 300 x 6", 300, 6, 2048, 24.42, 40.24),
    Load("large, 1000 x 3", 1000, 3, 8192, 14.60, 50.05),
    Load("long queue, 256 x 4", 256, 4, 4096, 30.86, 57.01),
    Load("heavy trace, 512 x 20", 512, 20, 1024, 13.28, 29.41),
)


@dataclass(frozen=True)
class Cost:
    """Games a second, and CPU milliseconds a game of hub and database."""

    games_per_second: float
    hub: float
    database: float


def _cpu(pid: int | None) -> float:
    """Seconds of a process, of its children, and of those that have ended."""
    if pid is None:
        return 0.0
    process = psutil.Process(pid)
    total = sum(process.cpu_times()[:4])
    for child in process.children(recursive=True):
        try:
            total += sum(child.cpu_times()[:2])
        except psutil.NoSuchProcess:
            continue
    return total


def _postmaster(server: PostgresServer | None) -> int | None:
    return None if server is None else int((server.data / "postmaster.pid").read_text().split()[0])


@asynccontextmanager
async def _hub(kind: str, server: PostgresServer, *options: str) -> AsyncIterator[hub_process.HubProcess]:
    with tempfile.TemporaryDirectory() as folder:
        if kind == "stock":
            hub = hub_process.StockHub(Path(folder))
        elif kind == "sqlite":
            hub = hub_process.HubProcess(Path(folder), "--log-level", "ERROR")
        else:
            url = await server.make_database(f"bench{time.monotonic_ns()}")
            hub = hub_process.HubProcess(Path(folder), "--log-level", "ERROR", "--db", url, *options)
            hub.database = url
        await hub.start()
        try:
            yield hub
        finally:
            hub.stop()


async def _drive(hub: hub_process.HubProcess, games: int, runners: int, turns: int, server=None) -> Cost:
    """Have so many games enqueued and played."""
    client, light = connect(hub.url, 60), LightRunners(hub.url, runners, turns)
    pids = hub.process.pid, _postmaster(server)
    before, started = [_cpu(pid) for pid in pids], time.perf_counter()
    running = asyncio.create_task(light.run())
    rollouts = await client.enqueue_many_rollouts([EnqueueRolloutRequest(input=n) for n in range(games)])
    finished, ids = FinishedGames(client), [rollout.rollout_id for rollout in rollouts]
    while len(await finished.look(ids)) < games:
        await asyncio.sleep(0.5)
    seconds = time.perf_counter() - started
    used = [1000 * (_cpu(pid) - first) / games for pid, first in zip(pids, before, strict=True)]
    light.stop()
    await running
    await client.close()
    return Cost(games / seconds, *used)


async def _six_loads(scale: float, server: PostgresServer) -> Table:
    table = Table("load: runners x turns", "hub", "games/s", "hub ms", "db ms", "of stock", "published of stock")
    table.title = f"agentlightning's own loads, scaled by {scale:g}; CPU is that of a game"
    for load in LOADS:
        runners, games = max(4, round(load.runners * scale)), max(40, round(load.batch * scale))
        stock = None
        for kind, options in (("stock", ()), ("sqlite", ()), ("postgres", ()), ("postgres", ("--workers", "2"))):
            async with _hub(kind, server, *options) as hub:
                cost = await _drive(hub, games, runners, load.turns, server if kind == "postgres" else None)
            stock = stock or cost
            published = f"MongoDB {load.mongo / load.in_memory:.2f}x" if kind == "stock" else ""
            ratio = f"{cost.games_per_second / stock.games_per_second:.2f}x"
            name = f"{kind} {' '.join(options)}".strip()
            table.add_row(load.name if kind == "stock" else "", name, f"{cost.games_per_second:.1f}",
                          f"{cost.hub:.1f}", f"{cost.database:.1f}", ratio, published)  # fmt: skip
    return table


async def _with_kills(scale: float, server: PostgresServer) -> Table:
    """Raises AssertionError if anything is lost or doubled."""
    games, runners, chance = round(GAMES_OPEN * scale), max(4, round(RUNNERS * scale)), random.Random(1)
    config = RolloutConfig(unresponsive_seconds=20, max_attempts=50, retry_condition=["unresponsive", "timeout"])
    async with _hub("postgres", server, "--workers", "2") as hub:
        client, light = connect(hub.url, 300), LightRunners(hub.url, runners, TURNS)
        tasks = [EnqueueRolloutRequest(input=n, config=config) for n in range(games)]
        ids = []
        for first in range(0, games, 1000):
            ids += [one.rollout_id for one in await client.enqueue_many_rollouts(tasks[first : first + 1000])]
        running, started = asyncio.create_task(light.run()), time.perf_counter()
        for kill in range(1, KILLS + 1):
            while len(light.played.ended) < games * kill // (KILLS + 2):
                await asyncio.sleep(0.05)
            if kill % 3:
                chance.choice(psutil.Process(hub.process.pid).children()).kill()
            else:
                server.kill()
                await asyncio.to_thread(server.start)
        finished = FinishedGames(client)
        while len(found := await finished.look(ids)) < games:
            await asyncio.sleep(0.5)
        seconds = time.perf_counter() - started
        light.stop()
        await running
        await client.close()
        played = light.played
        assert {one.status for one in found} == {"succeeded"} and {one.rollout_id for one in found} == set(ids)
        assert not played.doubled and set(played.ended) == set(ids), "a game is lost or was ended twice"
        kept = await asyncpg.connect(hub.database, server_settings={"search_path": SCHEMA})
        sql = "SELECT rollout_id, attempt_id, count(*), max(sequence_id) FROM spans GROUP BY 1, 2"
        stored = {(one, attempt): (count, last) for one, attempt, count, last in await kept.fetch(sql)}
        assert await kept.fetchval("SELECT count(*) FROM rollouts") == games
        await kept.close()
        for key, count in played.spans.items():
            assert stored[key][0] == stored[key][1] >= count, f"spans of {key} are lost or doubled"
    table = Table("open games", "runners", "kills", "games/s", "lost", "doubled", "played again")
    table.title = "Kills of hub processes (two in three) and of the database under way"
    again = len({key for key in stored}) - games
    table.add_row(str(games), str(runners), str(KILLS), f"{games / seconds:.1f}", "0", "0", str(again))
    return table


_FILL = (
    "INSERT INTO rollouts (rollout_id, start_time, end_time, status, document) "
    "SELECT 'old-' || n, n, n + 1, 'succeeded', '{\"rollout_id\":\"old-' || n || '\",\"input\":1,\"start_time\":' || n "
    '|| \',"end_time":\' || n + 1 || \',"status":"succeeded","config":{}}\' '
    "FROM generate_series($1::bigint, $2::bigint) AS n",
    "INSERT INTO attempts (rollout_id, attempt_id, sequence_id, start_time, end_time, status, document) "
    "SELECT 'old-' || n, 'at-1', 1, n, n + 1, 'succeeded', '{\"rollout_id\":\"old-' || n || '\",\"attempt_id\":\"at-1\","  # noqa: E501
    '"sequence_id":1,"start_time":\' || n || \',"end_time":\' || n + 1 || \',"status":"succeeded"}\' '
    "FROM generate_series($1::bigint, $2::bigint) AS n",
    "INSERT INTO spans (rollout_id, attempt_id, sequence_id, trace_id, span_id, name, document) "
    "SELECT 'old-' || n, 'at-1', s, '01', 's' || s, 'turn', repeat('x', 800) "
    "FROM generate_series($1::bigint, $2::bigint) AS n, generate_series(1, 6) AS s",
)


async def _flat(scale: float, server: PostgresServer) -> Table:
    table = Table("games kept", "games/s", "hub ms", "db ms", "of the first")
    table.title = "CPU of a game among so many that are kept"
    first, filled = None, 0
    async with _hub("postgres", server) as hub:
        kept = await asyncpg.connect(hub.database, server_settings={"search_path": SCHEMA})
        await _drive(hub, 60, 8, TURNS)  # warm
        for number in (round(number * scale) for number in KEPT):
            for statement in _FILL:
                await kept.execute(statement, filled + 1, number)
            filled = number
            await kept.execute("ANALYZE")
            cost = await _drive(hub, 150, 8, TURNS, server)
            first = first or cost
            ratio = (cost.hub + cost.database) / (first.hub + first.database)
            table.add_row(str(number), f"{cost.games_per_second:.1f}", f"{cost.hub:.1f}", f"{cost.database:.1f}",
                          f"{ratio:.2f}x")  # fmt: skip
    return table


def _measured(part: Callable[[float, PostgresServer], Awaitable[Table]]) -> Callable[[float], Table]:
    def measure(scale: float) -> Table:
        server = new_server(*_SERVER).start()
        try:
            return asyncio.run(part(scale, server))
        finally:
            discard(server)

    return measure


PARTS: Mapping[str, Callable[[float], Table]] = {
    "loads": _measured(_six_loads),
    "kills": _measured(_with_kills),
    "kept": _measured(_flat),
}
"""By name, each with a database server of its own."""
