"""Single small requests and bulk ones, one after another: our hub against ``agl store``, which keeps all in memory.

Each runs as a process; both get the same requests, alternating. Reported: median CPU milliseconds of the hub for a
request.
"""

import asyncio
import gzip
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any

import aiohttp
from rich.table import Table

from bench.light_runners import PROTOBUF, turn_span
from bench.tables import ratio_rows, table_of
from store.otlp import encode_otlp
from tests.support.hub.hub_process import HubProcess, StockHub

ROUNDS, BULK, TURNS = 60, 100, 60
OTLP = {**PROTOBUF, "Content-Encoding": "gzip"}


class Measured:
    """A hub, and the CPU milliseconds of its requests, by name."""

    def __init__(self, session: aiohttp.ClientSession, hub: HubProcess):
        self._session, self._url = session, f"{hub.url}/v1"
        self._threads = Path(f"/proc/{hub.process.pid}/task")
        self.took: dict[str, list[float]] = defaultdict(list)

    def _used(self) -> float:
        return sum(int(one.read_text().split()[0]) for one in self._threads.glob("*/schedstat")) / 1e6

    async def ask(self, name: str | None, method: str, path: str, **request: Any) -> Any:
        before = self._used()
        async with self._session.request(method, f"{self._url}/{path}", **request) as response:
            body = await response.read()
            assert response.status < 300, body
            if name is not None:
                self.took[name].append(self._used() - before)
            return await response.json() if path != "traces" else None


def _otlp(key: tuple[str, str], numbers: range) -> bytes:
    """Spans in the format of our runners."""
    return gzip.compress(encode_otlp({key: [turn_span(key, number) for number in numbers]}).SerializeToString())


def _tasks(count: int) -> dict[str, Any]:
    return {"rollouts": [{"input": {"seed": n, "text": "x" * 400}, "metadata": {"run": "b"}} for n in range(count)]}


async def _one_round(hub: Measured) -> None:
    """Every operation once, single and in bulk."""
    ask = hub.ask
    await ask("health check", "GET", "agl/health")
    await ask("enqueue 1", "POST", "agl/queues/rollouts/enqueue", json=_tasks(1))
    (taken,) = await ask("dequeue 1", "POST", "agl/queues/rollouts/dequeue", json={"limit": 1, "worker_id": "w-1"})
    key = taken["rollout_id"], taken["attempt"]["attempt_id"]
    attempt = f"agl/rollouts/{key[0]}/attempts/{key[1]}"
    await ask("store 1 span (OTLP)", "POST", "traces", data=_otlp(key, range(1, 2)), headers=OTLP)
    await ask("store 1 span (JSON)", "POST", "agl/spans", json=turn_span(key, 2).model_dump(mode="json"))
    await ask(f"store {TURNS} spans (OTLP)", "POST", "traces", data=_otlp(key, range(3, TURNS + 3)), headers=OTLP)
    await ask(f"read {TURNS} spans", "POST", "agl/spans/search", json={"rollout_id": key[0]})
    await ask("keep an attempt alive", "POST", attempt, json={"last_heartbeat_time": time.time()})
    await ask("finish an attempt", "POST", attempt, json={"status": "succeeded"})
    await ask("runner's heartbeat", "POST", "agl/workers/w-1", json={"heartbeat_stats": {"playing": 1}})
    await ask("wait for 1", "POST", "agl/waits/rollouts", json={"rollout_ids": [key[0]], "timeout": 0})
    await ask("count by state", "POST", "agl/rollouts/search", json={"status_in": ["succeeded"], "limit": 1})
    newest = {"status_in": ["succeeded", "failed"], "sort_by": "end_time", "sort_order": "desc", "limit": 50}
    await ask("newest 50 finished", "POST", "agl/rollouts/search", json=newest)
    await ask("statistics", "GET", "agl/statistics")

    many = await ask(f"enqueue {BULK}", "POST", "agl/queues/rollouts/enqueue", json=_tasks(BULK))
    ids = [one["rollout_id"] for one in many]
    await ask(f"look at {BULK} games", "POST", "agl/rollouts/search", json={"rollout_id_in": ids})
    await ask(f"wait for {BULK}", "POST", "agl/waits/rollouts", json={"rollout_ids": ids, "timeout": 0})
    taken = await ask(f"dequeue {BULK}", "POST", "agl/queues/rollouts/dequeue", json={"limit": BULK, "worker_id": "w"})
    for one in taken:
        path = f"agl/rollouts/{one['rollout_id']}/attempts/{one['attempt']['attempt_id']}"
        await ask(None, "POST", path, json={"status": "succeeded"})


async def _both(folder: Path) -> list[tuple[str, float, float]]:
    (folder / "stock").mkdir()
    hubs = HubProcess(folder), StockHub(folder / "stock")
    try:
        await asyncio.gather(*(hub.start() for hub in hubs))
        async with aiohttp.ClientSession() as session:
            ours, stock = (Measured(session, hub) for hub in hubs)
            for number in range(ROUNDS + 2):
                for hub in (ours, stock):
                    await _one_round(hub)
                    if number == 1:  # the first rounds warm both up
                        hub.took.clear()
    finally:
        for hub in hubs:
            hub.kill()
    return [(name, median(took), median(stock.took[name])) for name, took in ours.took.items()]


def measure(model_folder: Path) -> Table:
    with tempfile.TemporaryDirectory() as folder:
        rows = ratio_rows(asyncio.run(_both(Path(folder))), ".2f", ".2f")
    title = "CPU milliseconds of the hub for a request, one after another"
    return table_of(title, ("request", "ours", "agl store", "ours / other"), rows)
