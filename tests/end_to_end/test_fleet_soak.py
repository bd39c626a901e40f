"""20,000 games of real runners through a hub that deletes old ones: memory and file stay bounded (`pytest -m soak -s`).

A game stores one span here, its result."""

import asyncio
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

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


@dataclass
class Watched:
    """A process whose memory and CPU time are looked at. resident: bytes at each look,
    a few hundred megabytes of which a forked process has from the start."""

    name: str
    process: psutil.Process
    resident: list[int]
    cpu_before: float = 0.0

    @classmethod
    def of(cls, name: str, pid: int | None = None) -> "Watched":
        watched = cls(name, psutil.Process(pid), [])
        watched.cpu_before = watched.cpu_seconds()
        return watched

    def cpu_seconds(self) -> float:
        return sum(self.process.cpu_times()[:2]) - self.cpu_before

    def look(self) -> None:
        self.resident.append(self.process.memory_info().rss)


@dataclass
class Look:
    """The database after so many games. most_games: how many the rule lets it hold by then."""

    time: float
    games: int
    file_bytes: int
    most_games: int = 0


async def test_memory_and_file_stay_bounded_over_20_000_games(tmp_path):
    hub = DeletingHub(tmp_path)
    await hub.start()
    runners = [
        runner(tmp_path / f"runner-{n}.log", "--store", hub.url, "--n", str(GAMES_AT_ONCE), "--log-level", "WARNING")
        for n in range(RUNNERS)
    ]
    try:
        watched = [
            Watched.of("hub", hub.process.pid),
            *(Watched.of(f"runner {n}", process.pid) for n, process in enumerate(runners)),
            Watched.of("algorithm"),
        ]
        looks = await play_all(hub, watched)
        await check_those_that_stay(hub)
    finally:
        for process in runners:
            process.kill()
        hub.kill()
    # The first fifth fills the database up to what stays, and every cache. A leak of 2 kB a game is found.
    for each in watched:
        assert grown(each.resident) < 15 * MB, f"{each.name} grows: {[round(size / MB) for size in each.resident]}"
    for number, look in enumerate(looks):
        since = [earlier.games for earlier in looks[:number] if earlier.time < look.time - LONGEST_STAY_SECONDS]
        look.most_games = max(RULE.keep_rollouts, look.games - max(since, default=0))
    # The file keeps the space that it once needed.
    most_bytes = OTHER_BYTES + BYTES_PER_GAME * max(look.most_games for look in looks)
    assert max(look.file_bytes for look in looks) < most_bytes, f"more than {most_bytes / MB:.0f} MB: {looks}"
    assert most_bytes < BYTES_PER_GAME * GAMES / 2, "the games were so fast that the file need not have been bounded"


def grown(sizes: list[int]) -> int:
    """By how many bytes the most in the second half is above the most in the first, its first fifth apart."""
    return max(sizes[len(sizes) // 2 :]) - max(sizes[len(sizes) // 5 : len(sizes) // 2])


async def play_all(hub: DeletingHub, watched: list[Watched]) -> list[Look]:
    """The database after each step. Every step's games are read and checked as the algorithm does."""
    client = connect(hub.url)
    at_once, started = asyncio.Semaphore(STEPS_AT_ONCE), time.monotonic()
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
        for each in watched:
            each.look()
        games = (len(looks) + 1) * len(tasks)
        file_bytes = sum(path.stat().st_size for path in hub.database.parent.glob(f"{hub.database.name}*"))
        looks.append(Look(time.monotonic(), games, file_bytes))
        seconds = looks[-1].time - started
        resident = ", ".join(f"{each.name} {each.resident[-1] / MB:.0f}" for each in watched)
        costs = ", ".join(f"{each.name} {each.cpu_seconds() / games * 1000:.1f}" for each in watched)
        print(
            f"{games} games, {games / seconds:.1f}/s; resident MB: {resident}; database MB: {file_bytes / MB:.0f}; "
            f"CPU ms a game: {costs}",
            flush=True,
        )

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
