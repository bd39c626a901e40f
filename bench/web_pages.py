"""CPU cost of open pages for a hub with very many games, and load times of pages.

A hub is filled with copies of a short finished game. Then one long game is played at the pace of real models, twice:
without pages, and with the list of games (polled every 5 s) and the live game open. Reported: hub CPU of the pages and
of the game, as a share of one core. Load times need Chromium.
"""

import asyncio
import contextlib
import json
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import psutil
import pytest
from agentlightning import Attempt, EnqueueRolloutRequest, Rollout, Span
from rich.console import Group
from rich.table import Table

from bench.recorded import record_game, task_of
from bench.tables import table_of
from runners.worker import Worker
from store.client import StoreClient, connect
from store.hub.database.opening import opened_store
from store.hub.retention import export
from store.schema import PolicyResources
from store.werewolf import ResultSpan
from tests.support.hub.hub_process import HubProcess
from tests.support.werewolf.browser import Person, start_driver
from tests.support.werewolf.web_server import WebServer

GAMES = 50_000
PLAY_SECONDS = 60.0
LIST_EVERY_SECONDS = 5.0  # as home.js
RESOURCES = PolicyResources(run_name="bench-0123abcd", version=0, endpoints=(), model="")


async def _play(client: StoreClient, preset: str, result: ResultSpan, turns=(), started=lambda ro: None) -> None:
    """One game, its turns spread over ``PLAY_SECONDS``; returns once it is stored."""
    pause = PLAY_SECONDS / max(len(turns), 1)

    async def play(rollout, on_turn) -> ResultSpan:
        started(rollout.rollout_id)
        for turn in turns:
            await asyncio.sleep(pause)
            on_turn(turn, time.time() - pause, time.time())
        return result.model_copy(update={"turns": len(turns)})

    task = task_of(preset, 0).encode()
    request = EnqueueRolloutRequest(input=task, mode="train", resources_id=RESOURCES.resources_id)
    await client.enqueue_many_rollouts([request])
    await Worker(client, play, "plays", max_concurrent=1, max_rollouts=1).run()


async def _fill(client: StoreClient, hub: HubProcess, result: ResultSpan) -> None:
    """Play one game and copy it."""
    await _play(client, "5p_tiny", result)
    exported = hub.log.with_name("one.jsonl")
    await export(hub.database, exported)
    game = json.loads(exported.read_text())
    began, rollout_id = game["rollout"]["start_time"], game["rollout"]["rollout_id"]
    async with opened_store(hub.database) as store, store.collections.atomic() as collections:
        for number in range(1, GAMES):
            game["rollout"] |= {"start_time": began + number * 1e-3, "end_time": began + number * 1e-3 + 1}
            copy = json.loads(json.dumps(game).replace(rollout_id, f"{rollout_id}-{number}"))
            await collections.rollouts.insert([Rollout.model_validate(copy["rollout"])])
            await collections.attempts.insert([Attempt.model_validate(one) for one in copy["attempts"]])
            await collections.spans.insert([Span.model_validate(one) for one in copy["spans"]])


@asynccontextmanager
async def _open_pages(server: WebServer) -> AsyncIterator[asyncio.Future[str]]:
    """Open the list and, once the future has its id, a game."""
    rollout_id: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def lists() -> None:
        while True:
            await (await session.get("/api/games")).read()
            await asyncio.sleep(LIST_EVERY_SECONDS)

    async def follows() -> None:
        async with session.get("/api/game/live", params={"id": f"hub:{await rollout_id}"}) as response:
            async for _ in response.content:
                pass

    async with aiohttp.ClientSession(server.url, timeout=aiohttp.ClientTimeout(total=None)) as session:
        await (await session.get("/api/games")).read()  # cost of opening a page, once
        pages = [asyncio.create_task(lists()), asyncio.create_task(follows())]
        yield rollout_id
        for page in pages:
            page.cancel()
        await asyncio.gather(*pages, return_exceptions=True)


async def _measure(folder: Path, model_folder: Path) -> Group:
    (short, _), (result, turns) = [await record_game(preset, 0, model_folder) for preset in ("5p_tiny", "12p_sheriff")]
    hub = await HubProcess(folder).start()
    client, process = connect(hub.url), psutil.Process(hub.process.pid)

    async def spent(doing) -> float:
        before = sum(process.cpu_times()[:2])
        await doing
        return sum(process.cpu_times()[:2]) - before

    try:
        await client.update_resources(RESOURCES.resources_id, RESOURCES.encode())
        await _fill(client, hub, short)
        alone = await spent(_play(client, "12p_sheriff", result, turns))
        async with WebServer(folder, hub=hub.url) as server:
            async with _open_pages(server) as rollout_id:
                watched = await spent(_play(client, "12p_sheriff", result, turns, rollout_id.set_result))
            opened = await _opened(server, client, short.result)
    finally:
        await client.close()
        hub.kill()
    figures = (("the game", alone), ("the pages", watched - alone))
    rows = ((name, f"{seconds:.2f}", f"{100 * seconds / PLAY_SECONDS:.2f}") for name, seconds in figures)
    title = f"A 12p_sheriff game of {len(turns)} calls in {PLAY_SECONDS:.0f} s, a hub of {GAMES} games"
    return Group(table_of(title, ("CPU of the hub", "seconds", "% of a core"), rows), opened)


async def _opened(server: WebServer, client: StoreClient, result: str) -> Table:
    """Seconds until a page shows its content, first and second time."""
    newest = (await client.query_rollouts(limit=1, sort_by="start_time", sort_order="desc"))[0].rollout_id
    pages = {
        "the list": ("/", ".games .game-card"),
        "the list, filtered": (f"/?result={result}&preset=5p_tiny", ".games .game-card"),
        "a game": (f"/game?id=hub:{newest}", ".board .seat"),
        "a table": ("/play", "form button.primary"),
    }

    def seconds(person: Person, path: str, shows: str) -> float:
        person.driver.get("about:blank")
        started = time.perf_counter()
        person.driver.get(server.url + path)
        person.until(lambda: person.all(shows), shows)
        return time.perf_counter() - started

    rows = []
    with contextlib.suppress(pytest.skip.Exception):  # without Chromium
        driver = start_driver()
        try:
            for name, page in pages.items():
                times = [await asyncio.to_thread(seconds, Person(driver), *page) for _ in range(2)]
                rows.append((name, *(f"{took:.2f}" for took in times)))
        finally:
            driver.quit()
    return table_of("Seconds until a page shows its content", ("page", "first", "again"), rows)


def measure(model_folder: Path) -> Group:
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(_measure(Path(folder), model_folder))
