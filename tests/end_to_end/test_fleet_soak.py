"""20,000 games of real runners through a hub that deletes old ones: memory and file stay bounded (`pytest -m soak -s`).

A game stores one span here, its result."""

import asyncio
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

from algo.rollouts.queue import RolloutQueue
from algo.werewolf.tasks import step_tasks
from store.client import connect
from store.hub.retention import RetentionRule
from store.hub.server import HubSettings, run
from store.schema import PolicyResources
from store.werewolf import GAME, GameTask
from tests.support.hub import hub_process
from tests.support.hub.fleet import RUN, alive, runner
from tests.support.settings import werewolf_config

pytestmark = [pytest.mark.soak, pytest.mark.timeout(7200)]

GAMES = 20_000
RUN_CONFIG = werewolf_config(RUN, groups_per_step=50, rollouts_per_group=4)
STEPS = GAMES // (RUN_CONFIG.rollout.groups_per_step * RUN_CONFIG.rollout.rollouts_per_group)
STEPS_AT_ONCE, RUNNERS, GAMES_AT_ONCE = 3, 2, 8
RULE = RetentionRule(keep_rollouts=1000, youngest_seconds=60)
# How long a game above RULE may stay: until it may go, then until the hub next deletes, and that takes a while.
LONGEST_STAY_SECONDS = RULE.youngest_seconds + 60 + 30
MB = 1e6
BYTES_PER_GAME, OTHER_BYTES = 12_000, 8 * MB


def tasks_of(step: int) -> list[GameTask]:
    """A step's games, all seats played by scripted players, so that no model is needed and a game takes no time."""
    seating = {"wolf": "scripted", "good": "scripted"}
    return [
        GameTask.model_validate({**task.model_dump(), "seating": seating, "trainable": frozenset()})
        for task in step_tasks(RUN_CONFIG, step)
    ]


class DeletingHub(hub_process.HubProcess):
    """A hub that deletes finished games sooner than an hour after their end, as `--keep-rollouts` would."""

    def _fork(self):
        settings = HubSettings(host="127.0.0.1", port=self.port, database=self.database, retention=RULE)
        return hub_process.fork(_hub, self.log, settings)


def _hub(log: Path, settings: HubSettings) -> None:
    hub_process.say_to(log)
    asyncio.run(run(settings))


async def test_memory_and_file_stay_bounded_over_20_000_games(tmp_path):
    hub = DeletingHub(tmp_path)
    await hub.start()
    runners = [
        runner(tmp_path / f"runner-{n}.log", "--store", hub.url, "--n", str(GAMES_AT_ONCE), "--log-level", "WARNING")
        for n in range(RUNNERS)
    ]
    try:
        pids = {"hub": hub.process.pid, "algorithm": None} | {f"runner {n}": one.pid for n, one in enumerate(runners)}
        watched = {name: psutil.Process(pid) for name, pid in pids.items()}
        looks = await play_all(hub, watched)
        await check_those_that_stay(hub)
    finally:
        for process in runners:
            process.kill()
        hub.kill()
    # The first fifth fills the database up to what stays, and every cache. A leak of 2 kB a game is found.
    for name in watched:
        sizes = [look.resident[name] for look in looks]
        grown = max(sizes[len(sizes) // 2 :]) - max(sizes[len(sizes) // 5 : len(sizes) // 2])
        assert grown < 15 * MB, f"{name} grows: {[round(size / MB) for size in sizes]}"
    # How many games the rule lets the database hold at most; the file keeps the space that it once needed.
    most_games = RULE.keep_rollouts
    for number, look in enumerate(looks):
        since = [earlier.games for earlier in looks[:number] if earlier.time < look.time - LONGEST_STAY_SECONDS]
        most_games = max(most_games, look.games - max(since, default=0))
    most_bytes = OTHER_BYTES + BYTES_PER_GAME * most_games
    assert max(look.file_bytes for look in looks) < most_bytes, f"more than {most_bytes / MB:.0f} MB: {looks}"
    assert most_bytes < BYTES_PER_GAME * GAMES / 2, "the games were so fast that the file need not have been bounded"


class Look(NamedTuple):
    """The database after so many games, and the resident bytes of processes by name."""

    time: float
    games: int
    file_bytes: int
    resident: dict[str, int]


async def play_all(hub: DeletingHub, watched: dict[str, psutil.Process]) -> list[Look]:
    """A look after each step. Every step's games are read and checked as the algorithm does."""
    client = connect(hub.url)
    at_once = asyncio.Semaphore(STEPS_AT_ONCE)
    looks: list[Look] = []

    async def play(step: int) -> None:
        async with at_once:
            tasks = tasks_of(step)
            resources = PolicyResources(
                run_name=RUN, version=step, endpoints=("http://127.0.0.1:1/v1",), model="policy"
            )
            played = await RolloutQueue(client, GAME, RUN_CONFIG.rollout).play(
                tasks, resources, alive, lambda progress: None
            )
            assert len(played.finished) == len(tasks) and not played.left_out
        file_bytes = sum(path.stat().st_size for path in hub.database.parent.glob(f"{hub.database.name}*"))
        resident = {name: process.memory_info().rss for name, process in watched.items()}
        looks.append(Look(time.monotonic(), (len(looks) + 1) * len(tasks), file_bytes, resident))
        print(looks[-1], flush=True)

    async with asyncio.TaskGroup() as group:
        for step in range(STEPS):
            group.create_task(play(step))
    await client.close()
    return looks


async def check_those_that_stay(hub: DeletingHub) -> None:
    """Each game that is in the hub is finished, and there once; the others were finished, and are deleted."""
    client = connect(hub.url)
    kept = list(await client.query_rollouts())
    await client.close()
    assert {rollout.status for rollout in kept} == {"succeeded"}
    games = Counter(rollout.metadata["task_id"] for rollout in kept)
    expected = {task.game_id for step in range(STEPS) for task in tasks_of(step)}
    assert len(expected) == GAMES and games.keys() < expected
    assert max(games.values()) == 1
