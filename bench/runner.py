"""A runner under measurement, as a process of its own: ``python -m bench.runner KIND HUB MODEL GAMES``.

It prints a line when ready, waits for a line, and plays so many games. ``ours`` and ``stock`` (agentlightning's) replay
a recorded game, so that everything but the play is measured, and print a line at the end. ``ours-held`` and
``stock-held`` play until each game is at its last counted call, and print the private megabytes of the process.
"""

import asyncio
import gc
import itertools
import os
import sys
from pathlib import Path

import psutil

from bench.recorded import play_scripted, record_game
from runners.attempt_spans import AttemptSpans
from runners.play import Play, TurnSink
from runners.werewolf.werewolf_play import read_task
from runners.worker import Worker
from store.client import connect
from store.protocol import AttemptedRollout
from store.werewolf import ResultSpan

PRESET, TURNS = "12p_sheriff", 60
AT_ONCE = 8
SAYS = b"bench: "


def _say(what: object) -> None:
    print(SAYS.decode(), what, flush=True)


def _stock_runner(url: str, play: Play, count: int):
    """agentlightning's (client, runner): plays like ours, and stores a game's spans at its end, one by one."""
    from agentlightning import LightningStoreClient, LitAgent, LitAgentRunner, OtelTracer, Span

    class Agent(LitAgent[dict]):
        async def rollout_async(self, task: dict, resources: object, rollout: AttemptedRollout) -> list[Span]:
            spans = []
            attempt = AttemptSpans(spans.append, (rollout.rollout_id, rollout.attempt.attempt_id))
            attempt.add_result(await play(rollout, attempt.add_turn), 1.7e9)
            return [Span.from_attributes(**dict(span)) for span in spans]

    client, runner = LightningStoreClient(url), LitAgentRunner(OtelTracer(), max_rollouts=count)
    runner.init(Agent())
    runner.init_worker(os.getpid(), client)
    return client, runner


async def run(kind: str, url: str, model_folder: Path, count: int) -> None:
    held = kind.endswith("-held")
    at_last_call = asyncio.Semaphore(0)
    recorded = None if held else await record_game(PRESET, 0, model_folder)

    async def play(rollout: AttemptedRollout, on_turn: TurnSink) -> ResultSpan:
        if recorded is not None:
            result, turns = recorded
            for turn in turns[:TURNS]:
                on_turn(turn, 1.7e9, 1.7e9)
                await asyncio.sleep(0)
            return result
        calls = itertools.count(1)

        async def wait() -> None:
            if next(calls) == TURNS:
                at_last_call.release()
                await asyncio.Event().wait()

        return await play_scripted(read_task(rollout), model_folder, on_turn, wait)

    _say("ready")
    sys.stdin.readline()
    if kind.startswith("ours"):
        client, at_once = connect(url), count if held else AT_ONCE
        running = asyncio.create_task(Worker(client, play, kind, max_concurrent=at_once, max_rollouts=count).run())
    else:
        client, runner = _stock_runner(url, play, count)
        running = asyncio.create_task(runner.iter())
    if not held:
        await running
        await client.close()
        return _say("done")
    for _ in range(count):
        await asyncio.wait([asyncio.create_task(at_last_call.acquire()), running], return_when=asyncio.FIRST_COMPLETED)
        assert not running.done(), f"the runner has ended before its games were at their call {TURNS}"
    gc.collect()
    _say(psutil.Process().memory_full_info().uss / 1e6)
    await running


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4])))
