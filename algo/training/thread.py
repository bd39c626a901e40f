"""The engine's blocking calls, all on one thread, while the event loop goes on."""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

_Result = TypeVar("_Result")


class TrainerThread:
    """``seconds``: how long its calls have taken, together."""

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
        """Make a call and await it. Cancelling the wait does not end the call; closing the engine does."""
        return await asyncio.shield(self.submit(call, *arguments))
