"""Calls of the trainer's thread."""

import asyncio
import gc
import threading

import pytest

from algo.training.thread import TrainerThread


async def test_a_call_that_fails_after_its_caller_was_cancelled_is_not_reported():
    reported, released = [], threading.Event()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["message"]))

    def fails():
        released.wait()
        raise RuntimeError("the engine is closed")

    trainer = TrainerThread()
    waiting = asyncio.create_task(trainer.run(fails))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    released.set()
    await trainer.run(int)
    await asyncio.sleep(0)
    del waiting
    gc.collect()
    assert reported == []
