"""What open pages cost a hub that holds very many games, and how soon pages open.

A hub of its own is filled with copies of a short finished game ($WEB_GAMES, 50,000 by default). Then one long game is
played at the pace of real models, twice: with no page open; and with the list of games open, which asks every 5 s, and
the game followed live. What the pages add to the hub's CPU time is told as a share of one core for that time, beside
what the game itself costs. Pages are opened in Chromium where there is one.
"""

import asyncio
import contextlib
import json
import os
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

from bench.recorded import record_game, scripted_task
from bench.tables import table_of
from runners.worker import Worker
from store.client import PatientStoreClient, connect
from store.hub.database.opening import opened_store
from store.hub.retention import export
from store.schema import PolicyResources
from store.werewolf import ResultSpan, TurnSpan
from tests.support.hub import hub_process
from tests.support.werewolf.browser import Person, start_driver
from tests.support.werewolf.web_server import WebServer

GAMES = int(os.environ.get("WEB_GAMES", "50000"))
PLAY_SECONDS = 60.0
LIST_EVERY_SECONDS = 5.0  # as home.js
RESOURCES = PolicyResources(run_name="bench-0123abcd", version=0, endpoints=(), model="")


async def _enqueue(client: PatientStoreClient, preset: str, seeds: range) -> list[str]:
    requests = [
        EnqueueRolloutRequest(
            input=scripted_task(preset, seed).encode(), mode="train", resources_id=RESOURCES.resources_id
        )
        for seed in seeds
    ]
    return [rollout.rollout_id for rollout in await client.enqueue_many_rollouts(requests)]


async def _fill(client: PatientStoreClient, hub: hub_process.HubProcess, folder: Path, result: ResultSpan) -> None:
    """One game is played; the others are its copies."""

    async def play(rollout: object, on_turn: object) -> ResultSpan:
        return result.model_copy(update={"turns": 0})

    (rollout_id,) = await _enqueue(client, "5p_tiny", range(1))
    await Worker(client, play, "fills", games_at_once=1, max_games=1).run()
    await export(hub.database, folder / "one.jsonl")
    game = json.loads((folder / "one.jsonl").read_text())
    began = game["rollout"]["start_time"]
    async with opened_store(hub.database) as store, store.collections.atomic() as collections:
        for number in range(1, GAMES):
            game["rollout"] |= {"start_time": began + number * 1e-3, "end_time": began + number * 1e-3 + 1}
            copy = json.loads(json.dumps(game).replace(rollout_id, f"{rollout_id}-{number}"))
            await collections.rollouts.insert([Rollout.model_validate(copy["rollout"])])
            await collections.attempts.insert([Attempt.model_validate(one) for one in copy["attempts"]])
            await collections.spans.insert([Span.model_validate(one) for one in copy["spans"]])


async def _play_one(client: PatientStoreClient, rollout_ids: list[str], turns: list[TurnSpan], result: ResultSpan):
    """The long game, its turns spread over ``PLAY_SECONDS``; returns when it is stored."""
    pause = PLAY_SECONDS / len(turns)

    async def play(rollout, on_turn) -> ResultSpan:
        rollout_ids.append(rollout.rollout_id)
        for turn in turns:
            await asyncio.sleep(pause)
            on_turn(turn, time.time() - pause, time.time())
        return result

    await Worker(client, play, "plays", games_at_once=1, max_games=1).run()


@asynccontextmanager
async def _open_pages(session: aiohttp.ClientSession | None, rollout_ids: list[str]) -> AsyncIterator[None]:
    if session is None:
        yield
        return

    async def lists() -> None:
        while True:
            async with session.get("/api/games") as response:
                await response.read()
            await asyncio.sleep(LIST_EVERY_SECONDS)

    async def follows() -> None:
        while not rollout_ids:
            await asyncio.sleep(0.1)
        async with session.get("/api/game/live", params={"id": f"hub:{rollout_ids[0]}"}) as response:
            async for _ in response.content:
                pass

    pages = [asyncio.create_task(lists()), asyncio.create_task(follows())]
    try:
        yield
    finally:
        for page in pages:
            page.cancel()
        await asyncio.gather(*pages, return_exceptions=True)


async def _hub_seconds(hub: hub_process.HubProcess, client: PatientStoreClient, session, turns, result) -> float:
    """CPU seconds of the hub while the long game is played. session: of the pages; None: none is open."""
    process, rollout_ids = psutil.Process(hub.process.pid), []
    await _enqueue(client, "12p_sheriff", range(1))
    before = sum(process.cpu_times()[:2])
    async with _open_pages(session, rollout_ids):
        await _play_one(client, rollout_ids, turns, result)
    return sum(process.cpu_times()[:2]) - before


async def _measure(folder: Path, model_folder: Path) -> Group:
    (short, _), (result, turns) = [await record_game(preset, 0, model_folder) for preset in ("5p_tiny", "12p_sheriff")]
    hub = hub_process.HubProcess(folder)
    await hub.start()
    client = connect(hub.url)
    try:
        await client.update_resources(RESOURCES.resources_id, RESOURCES.encode())
        started = time.perf_counter()
        await _fill(client, hub, folder, short)
        filled = time.perf_counter() - started
        process = psutil.Process(hub.process.pid)
        before = sum(process.cpu_times()[:2])
        await asyncio.sleep(PLAY_SECONDS / 3)
        idle = (sum(process.cpu_times()[:2]) - before) * 3
        alone = await _hub_seconds(hub, client, None, turns, result)
        async with WebServer(folder, hub=hub.url) as server:
            async with aiohttp.ClientSession(server.url, timeout=aiohttp.ClientTimeout(total=None)) as session:
                async with session.get("/api/games") as response:  # what a page costs once, when it opens
                    await response.read()
                watched = await _hub_seconds(hub, client, session, turns, result)
            opened = await _opened(server, client, short.result)
    finally:
        await client.close()
        hub.kill()
    spent = {
        "nothing played, no page": idle,
        "the game": alone,
        "the game and the pages": watched,
        "the pages": watched - alone,
    }
    rows = ((name, f"{seconds:.2f}", f"{100 * seconds / PLAY_SECONDS:.2f}") for name, seconds in spent.items())
    title = (
        f"One 12p_sheriff game of {len(turns)} calls in {PLAY_SECONDS:.0f} s, a hub of {GAMES} games "
        f"(filled in {filled:.0f} s), the list open and the game followed"
    )
    return Group(table_of(title, ("CPU of the hub", "seconds", "% of a core"), rows), opened)


async def _opened(server: WebServer, client: PatientStoreClient, result: str) -> Table:
    """Seconds from an address to what it shows, cold and again."""
    newest = (await client.query_rollouts(limit=1, sort_by="start_time", sort_order="desc")).items[0].rollout_id
    pages = {
        "the list": ("/", "table.games tbody tr.open"),
        "the list, filtered": (f"/?result={result}&preset=5p_tiny", "table.games tbody tr.open"),
        "a game": (f"/game?id=hub:{newest}", ".board .seat"),
        "a table": ("/play", "form button.primary"),
    }
    rows = []
    with contextlib.suppress(pytest.skip.Exception):  # where there is no Chromium
        driver = start_driver()
        try:
            person = Person(driver)
            for name, (path, shows) in pages.items():
                times = [await asyncio.to_thread(_seconds, person, server.url + path, shows) for _ in range(2)]
                rows.append((name, *(f"{seconds:.2f}" for seconds in times)))
        finally:
            driver.quit()
    return table_of("Seconds until a page shows what it is for", ("page", "first", "again"), rows)


def _seconds(person: Person, url: str, shows: str) -> float:
    person.driver.get("about:blank")
    started = time.perf_counter()
    person.driver.get(url)
    person.until(lambda: person.all(shows), shows)
    return time.perf_counter() - started


def measure(model_folder: Path) -> Group:
    """Fill a hub, play, open pages."""
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(_measure(Path(folder), model_folder))
