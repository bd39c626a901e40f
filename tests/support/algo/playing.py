"""A real worker that plays in this process, and a play of one turn."""

import asyncio
from contextlib import asynccontextmanager

from runners.worker import Worker
from store.token_spans import context_digest
from store.werewolf import GameTask
from tests.support.fakes import make_result, make_turn


async def alive():
    """Servers of which none has died."""


async def ended(queue, tasks, check_alive, on_progress):
    """Wait until all rollouts of the enqueued tasks have ended, and take them."""
    ids = {task.task_id for task in tasks}
    await queue.watch(ids, lambda: len(queue.ended(ids)) == len(ids), check_alive, on_progress)
    return queue.take(tasks)


class OneTurnPlay:
    """A ``Play`` of one turn by the served version."""

    version = 0

    async def __call__(self, rollout, on_turn):
        task = GameTask.decode(rollout.input)
        turn = make_turn(
            game_id=task.game_id,
            group_id=task.group_id,
            seat=1,
            turn=0,
            policy_version=self.version,
            context_tokens=0,
            context_digest=context_digest([]),
            prompt_ids=(1,),
        )
        on_turn(turn, 1.7e9, 1.7e9)
        wins = task.game_id.endswith("0")  # half of a group, so that there is something to learn
        result = make_result("wolf" if wins else "good")
        seat = result.seats[0].model_copy(update={"outcome": 1.0 if wins else -1.0})
        update = {"game_id": task.game_id, "group_id": task.group_id, "turns": 1, "seats": (seat,)}
        return result.model_copy(update=update)


@asynccontextmanager
async def playing(client, play, max_concurrent=32):
    """The play is closed with the worker's end, where it can be."""
    worker = Worker(client, play, "w", max_concurrent=max_concurrent, heartbeat_seconds=0.2)
    working = asyncio.create_task(worker.run())
    try:
        yield
    finally:
        worker.hand_back()
        await working
        if hasattr(play, "close"):
            await play.close()
