"""A runner that holds games in memory, as a process of its own: ``python -m bench.held_games KIND HUB MODEL GAMES``.

Takes so many games from the hub and plays them until each has come to its 60th model call, where it stays. Then it
prints the megabytes that the process alone holds, and goes on until it is killed. Imports what such a runner imports.
"""

import asyncio
import gc
import itertools
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import psutil
from agentlightning import AttemptedRollout, LightningStoreClient, LitAgent, LitAgentRunner, OtelTracer, Span

from bench.recorded import play_scripted
from runners.attempt_spans import AttemptSpans
from runners.play import TurnSink
from runners.werewolf.agent import read_task
from runners.worker import Worker
from store.client import connect
from store.werewolf import ResultSpan

OURS, STOCK = "worker", "lit_agent_runner"
HELD_CALL = 60
ANSWER = "megabytes:"


class HeldGames:
    """Plays scripted games up to their ``HELD_CALL``-th model call."""

    def __init__(self, model_folder: Path):
        self._model_folder = model_folder
        self.held = asyncio.Semaphore(0)

    async def play(self, rollout: AttemptedRollout, on_turn: TurnSink) -> ResultSpan:
        """As a worker plays a game; does not return."""
        return await play_scripted(read_task(rollout), self._model_folder, on_turn, self._until_held())

    def _until_held(self) -> Callable[[], Awaitable[None]]:
        calls = itertools.count(1)

        async def wait() -> None:
            if next(calls) == HELD_CALL:
                self.held.release()
                await asyncio.Event().wait()

        return wait


class HeldAgent(LitAgent[dict]):
    """The same as an agentlightning agent, which stores its spans when the game is over."""

    def __init__(self, games: HeldGames):
        super().__init__()
        self._games = games

    async def rollout_async(self, task: dict, resources: object, rollout: AttemptedRollout) -> list[Span]:
        """Does not return."""
        spans: list[Span] = []
        attempt = AttemptSpans(spans.append, (rollout.rollout_id, rollout.attempt.attempt_id))
        attempt.add_result(await self._games.play(rollout, attempt.add_turn), time.time())
        return spans


async def run(kind: str, url: str, model_folder: Path, count: int) -> None:
    """Hold the games, and print what they take."""
    games = HeldGames(model_folder)
    if kind == OURS:
        running = asyncio.create_task(Worker(connect(url), games.play, kind, games_at_once=count).run())
    else:
        assert (kind, count) == (STOCK, 1), "agentlightning's runner plays one game at a time"
        runner = LitAgentRunner(OtelTracer())
        runner.init(HeldAgent(games))
        runner.init_worker(0, LightningStoreClient(url))
        running = asyncio.create_task(runner.iter())
    for _ in range(count):
        held = asyncio.create_task(games.held.acquire())
        await asyncio.wait([held, running], return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            running.result()
            raise RuntimeError(f"the runner has ended before its games were at their call {HELD_CALL}")
    gc.collect()
    print(ANSWER, psutil.Process().memory_full_info().uss / 1e6, flush=True)
    await running


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4])))
