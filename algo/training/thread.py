"""A thread for the blocking calls of the engine."""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

_Result = TypeVar("_Result")


class TrainerThread:
    """Runs calls one after another. seconds: total duration of its calls."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="trainer")
        self.seconds = 0.0

    def submit(self, call: Callable[..., _Result], *arguments: Any) -> asyncio.Future[_Result]:
        def timed() -> _Result:
            started = time.monotonic()
            try:
                return call(*arguments)
            finally:
                self.seconds += time.monotonic() - started

        return asyncio.wrap_future(self._executor.submit(timed))

    async def run(self, call: Callable[..., _Result], *arguments: Any) -> _Result:
        """Await a call. Cancellation does not end the call; closing the engine does."""
        future = self.submit(call, *arguments)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            # The closed engine ends the call with an error, which asyncio would report.
            future.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
            raise
