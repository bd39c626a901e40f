"""A fleet of real processes that may be killed at any moment: runners, an algorithm, hubs; forked in a moment."""

import asyncio
import json
import logging
import os
import random
import signal
import sys
from collections.abc import Callable, Collection, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path

from aiohttp import web

from algo.rollouts.queue import RolloutQueue
from algo.werewolf.tasks import step_tasks
from configs.schema import Config
from runners.processes import EXIT_INTERRUPTED
from store.client import connect
from store.protocol import Rollout, Span
from store.schema import PolicyResources
from store.werewolf import GAME, ResultSpan
from tests.support.algo.playing import alive, ended
from tests.support.fakes import FakeVllm
from tests.support.hub import hub_process

# A forked runner has its imports.
hub_process.preload("runners.werewolf.agent", "runners.worker", "algo.rollouts.queue")

RUN = "fleet"
_OWN_DEATH = "died:"


class Kept:
    """A process that is started again whenever it was killed, until it is interrupted.

    start: starts the process. has_an_end: it may also end by itself, with 0. deaths: how often it was killed.
    """

    def __init__(self, name: str, start: Callable[[], BaseProcess], has_an_end: bool = False):
        self.name = name
        self.deaths = 0
        self._start = start
        self._process: BaseProcess | None = None
        self._in_order = {0} if has_an_end else set()
        self._interrupted = False
        self._ended = asyncio.Event()

    async def keep(self) -> None:
        """Return when it has ended in order; any other end but SIGKILL is an AssertionError."""
        while True:
            self._process = self._start()
            await exit_of(self._process)
            self._ended.set()
            if self._process.exitcode != -signal.SIGKILL:
                assert self._process.exitcode in self._in_order, f"{self.name} ended with {self._process.exitcode}"
                return
            self.deaths += 1
            if self._interrupted:
                return

    def kill(self) -> None:
        """``kill -9``, if it is running."""
        if self._process is not None:
            self._process.kill()

    async def die(self) -> None:
        """``kill -9``; returns once it has been noticed, which takes a moment, so that the next one finds it alive."""
        self._ended.clear()
        self.kill()
        await self._ended.wait()

    def interrupt(self) -> None:
        """SIGTERM: drain, then end."""
        self._interrupted = True
        # The latter two: before it was ready to end in order.
        self._in_order = {0, EXIT_INTERRUPTED, -signal.SIGTERM}
        self._process.terminate()


async def exit_of(process: BaseProcess) -> None:
    """Return once the process has ended."""
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(process.sentinel, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(process.sentinel)
    process.join()


def runner(log: Path, *arguments: str) -> BaseProcess:
    """``python -m runners.werewolf``."""
    return hub_process.fork(_runner, log, arguments)


def _runner(log: Path, arguments: tuple[str, ...]) -> None:
    from runners.werewolf.__main__ import main

    hub_process.say_to(log)
    sys.argv = ["runners.werewolf", *arguments]
    raise SystemExit(main())


class SlowVllm(FakeVllm):
    """A policy that takes its time, so that games can be interrupted, and counts its calls as they come."""

    def __init__(self, tokenizer, chance: random.Random, longest_seconds: float):
        super().__init__(tokenizer, lambda prompt: chance.choice(["决定：1号", "决定：3号", "过"]))
        self._chance = chance
        self._longest = longest_seconds
        self.calls = asyncio.Semaphore(0)

    async def _completions(self, request: web.Request) -> web.Response:
        self.calls.release()
        await asyncio.sleep(self._chance.uniform(0, self._longest))
        return await super()._completions(request)


# --- the algorithm ----------------------------------------------------------------------------------------------------


def algorithm(*arguments) -> BaseProcess:
    """A program that reads games and writes down which, as one that trains would take them; see ``_algorithm``."""
    return hub_process.fork(_algorithm, *arguments)


def _algorithm(
    log: Path,
    journal: Path,
    url: str,
    endpoint: str,
    config: Config,
    batches: int,
    suicidal: float,
    start: int,
) -> None:
    """Have the batches played, five at a time, and write each down durably before it counts as done.

    suicidal: how likely it is to die at each of the moments at which a death is most likely to do harm: after the games
        are enqueued, before they are written down, and after. start: how often it was started before.
    """
    hub_process.say_to(log)
    logging.basicConfig(level="INFO", format="%(asctime)s %(name)s: %(message)s")
    resumed = journal.exists()
    journal.touch()
    file = os.open(journal, os.O_WRONLY | os.O_APPEND)
    done = {entry["batch"] for entry in read_journal(journal)}
    chance = random.Random(f"{config.run.seed}/{start}")
    at_once = asyncio.Semaphore(5)

    def perhaps_die(moment: str) -> None:
        if chance.random() < suicidal:
            print(_OWN_DEATH, moment, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)

    async def play(client, batch: int) -> None:
        async with at_once:
            tasks = step_tasks(config, batch)
            enqueued = asyncio.Event()

            def on_progress(progress) -> None:
                if not enqueued.is_set():
                    enqueued.set()
                    perhaps_die("enqueued")

            resources = PolicyResources(run_name=RUN, version=batch, endpoints=(endpoint,), model="policy")
            games = RolloutQueue(client, GAME, config.rollout)
            await games.enqueue(tasks, resources, resumed)
            played = await ended(games, tasks, alive, on_progress)
            perhaps_die("read")
            finished = [(game.outcome.task, game.rollout_id, game.attempt_id) for game in played.finished]
            entry = {"batch": batch, "games": finished, "failures": played.failures}
            os.write(file, (json.dumps(entry) + "\n").encode())
            os.fsync(file)
            perhaps_die("written")

    async def run() -> None:
        client = connect(url)
        await client.wait_until_reachable()
        async with asyncio.TaskGroup() as group:
            for batch in set(range(batches)) - done:
                group.create_task(play(client, batch))
        await client.close()

    asyncio.run(run())


def own_deaths(log: Path) -> int:
    """How often the algorithm with this log has ended itself."""
    return sum(line.startswith(_OWN_DEATH) for line in log.read_text().splitlines())


def read_journal(journal: Path) -> list[dict]:
    """The batches that were written down."""
    return [json.loads(line) for line in journal.read_text().splitlines()]


async def finished_once(
    hub: str, journal: Path, tasks: Collection[str], batches: int
) -> tuple[list[tuple[Rollout, Sequence[Span]]], int]:
    """(The rollouts of these tasks with the spans of their last attempts, how many more were cancelled.)

    AssertionError unless every task has ended once, well, and the algorithm has read it once, as it ended.
    """
    client = connect(hub)
    rollouts = await client.query_rollouts()
    finished = {rollout.metadata["task_id"]: rollout for rollout in rollouts if rollout.status != "cancelled"}
    assert finished.keys() == set(tasks)
    assert [rollout.status for rollout in rollouts if rollout.status != "cancelled"] == ["succeeded"] * len(tasks)
    found = [(one, await client.query_spans(one.rollout_id, one.attempt.attempt_id)) for one in finished.values()]
    assert all(sum(map(ResultSpan.is_in, spans)) == 1 for _, spans in found)
    assert await client.dequeue_many_rollouts(limit=1, worker_id="late") == []
    await client.close()
    entries = read_journal(journal)
    assert sorted(entry["batch"] for entry in entries) == list(range(batches))
    assert not any(entry["failures"] for entry in entries)
    read = [tuple(game) for entry in entries for game in entry["games"]]
    assert sorted(read) == sorted((name, one.rollout_id, one.attempt.attempt_id) for name, one in finished.items())
    return found, len(rollouts) - len(found)
