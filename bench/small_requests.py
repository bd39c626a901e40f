"""Single small requests and bulk ones, one after another: our hub against ``agl store``, which keeps all in memory.

Both run as processes of their own and get the same requests, in turns. Milliseconds of CPU that the hub takes for a
request, and of the whole request as a client on the same machine sees it, in which other programs have their part: the
medians over many.
"""

import asyncio
import gzip
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import aiohttp
from rich.table import Table

from store.client import encode_otlp

# isort: split
from agentlightning import Span

from bench.tables import ratio_rows, table_of
from tests.support.hub.hub_process import HubProcess, StockHub

ROUNDS = 40
BULK = 100
TURNS = 60
OTLP = {"Content-Type": "application/x-protobuf", "Content-Encoding": "gzip"}
TEXT = "x" * 400


class Side:
    """One hub under measurement."""

    def __init__(self, session: aiohttp.ClientSession, url: str, pid: int):
        self.session = session
        self.url = url
        self.pid = pid
        self.times: dict[str, list[float]] = {}
        self.cpu: dict[str, list[float]] = {}

    async def ask(self, name: str | None, method: str, path: str, **request: Any) -> Any:
        """Send a request and read the answer; its time counts for ``name``."""
        started, before = time.perf_counter(), cpu_milliseconds(self.pid)
        async with self.session.request(method, f"{self.url}/v1/{path}", **request) as response:
            body = await response.read()
            taken = time.perf_counter() - started
            assert response.status < 300, body
            if name is not None:
                self.times.setdefault(name, []).append(1000 * taken)
                self.cpu.setdefault(name, []).append(cpu_milliseconds(self.pid) - before)
            return await response.json() if path != "traces" else None


def cpu_milliseconds(pid: int) -> float:
    """What all threads of a process have taken so far."""
    return sum(int(one.read_text().split()[0]) for one in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e6


def span(key: tuple[str, str], number: int) -> Span:
    """A turn's span: some text, some packed numbers."""
    return Span.from_attributes(
        attributes={"reply": TEXT, "prompt": TEXT, "turn": number, "seat": number % 12},
        rollout_id=key[0],
        attempt_id=key[1],
        sequence_id=number,
        name="turn",
        trace_id=f"{1:032x}",
        span_id=f"{number:016x}",
        start_time=1.7e9,
        end_time=1.7e9,
    )


def otlp(key: tuple[str, str], numbers: range) -> bytes:
    """Spans as our runners send them."""
    return gzip.compress(encode_otlp({key: [span(key, number) for number in numbers]}).SerializeToString())


def tasks(count: int) -> dict[str, Any]:
    """A request to enqueue games."""
    return {"rollouts": [{"input": {"seed": n, "text": TEXT}, "metadata": {"run": "bench"}} for n in range(count)]}


async def one_round(side: Side) -> None:
    """Every operation once, alone and in bulk."""
    ask = side.ask
    await ask("health check", "GET", "agl/health")
    await ask("enqueue 1", "POST", "agl/queues/rollouts/enqueue", json=tasks(1))
    (taken,) = await ask("dequeue 1", "POST", "agl/queues/rollouts/dequeue", json={"limit": 1, "worker_id": "w-1"})
    key = taken["rollout_id"], taken["attempt"]["attempt_id"]
    attempt = f"agl/rollouts/{key[0]}/attempts/{key[1]}"
    await ask("store 1 span (OTLP)", "POST", "traces", data=otlp(key, range(1, 2)), headers=OTLP)
    await ask("store 1 span (JSON)", "POST", "agl/spans", json=span(key, 2).model_dump(mode="json"))
    await ask(f"store {TURNS} spans (OTLP)", "POST", "traces", data=otlp(key, range(3, TURNS + 3)), headers=OTLP)
    await ask(f"read {TURNS} spans", "POST", "agl/spans/search", json={"rollout_id": key[0]})
    await ask("keep an attempt alive", "POST", attempt, json={"last_heartbeat_time": time.time()})
    await ask("finish an attempt", "POST", attempt, json={"status": "succeeded"})
    await ask("runner's heartbeat", "POST", "agl/workers/w-1", json={"heartbeat_stats": {"playing": 1}})
    await ask("wait for 1", "POST", "agl/waits/rollouts", json={"rollout_ids": [key[0]], "timeout": 0})
    await ask("count by state", "POST", "agl/rollouts/search", json={"status_in": ["succeeded"], "limit": 1})
    newest = {"status_in": ["succeeded", "failed"], "sort_by": "end_time", "sort_order": "desc", "limit": 50}
    await ask("newest 50 finished", "POST", "agl/rollouts/search", json=newest)
    await ask("statistics", "GET", "agl/statistics")

    many = await ask(f"enqueue {BULK}", "POST", "agl/queues/rollouts/enqueue", json=tasks(BULK))
    ids = [one["rollout_id"] for one in many]
    await ask(f"look at {BULK} games", "POST", "agl/rollouts/search", json={"rollout_id_in": ids})
    await ask(f"wait for {BULK}", "POST", "agl/waits/rollouts", json={"rollout_ids": ids, "timeout": 0})
    taken = await ask(f"dequeue {BULK}", "POST", "agl/queues/rollouts/dequeue", json={"limit": BULK, "worker_id": "w"})
    for one in taken:
        path = f"agl/rollouts/{one['rollout_id']}/attempts/{one['attempt']['attempt_id']}"
        await ask(None, "POST", path, json={"status": "succeeded"})


async def both_sides(folder: Path) -> tuple[Side, Side]:
    """(ours, stock), measured."""
    (folder / "stock").mkdir()
    hubs = HubProcess(folder), StockHub(folder / "stock")
    try:
        await asyncio.gather(*(hub.start() for hub in hubs))
        async with aiohttp.ClientSession() as session:
            ours, stock = (Side(session, hub.url, hub.process.pid) for hub in hubs)
            for round_number in range(ROUNDS + 2):
                for side in (ours, stock):
                    if round_number == 2:  # the first rounds warm both up
                        side.times.clear()
                        side.cpu.clear()
                    await one_round(side)
    finally:
        for hub in hubs:
            hub.kill()
    return ours, stock


def measure(model_folder: Path) -> Table:
    """The table of all operations."""
    with tempfile.TemporaryDirectory() as folder:
        ours, stock = asyncio.run(both_sides(Path(folder)))
    figures = (
        ratio_rows(((name, median(mine[name]), median(other[name])) for name in mine), ".2f", ".2f")
        for mine, other in ((ours.cpu, stock.cpu), (ours.times, stock.times))
    )
    columns = ("request", "CPU: ours", "agl store", "ours / other", "wall: ours", "agl store", "ours / other")
    rows = ((*cpu, *wall[1:]) for cpu, wall in zip(*figures, strict=True))
    return table_of("Milliseconds of a request, one after another", columns, rows)
