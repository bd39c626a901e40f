"""The engine's blocking calls, beside the event loop."""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

_Result = TypeVar("_Result")


class TrainerThread:
    """Runs the engine's blocking calls, all on one thread, beside the event loop."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="trainer")
        self.seconds = 0.0
        """How long its calls have taken, together."""

    def submit(self, call: Callable[..., _Result], *arguments: Any) -> asyncio.Future[_Result]:
        return asyncio.wrap_future(self._executor.submit(self._timed, call, *arguments))

    def _timed(self, call: Callable[..., _Result], *arguments: Any) -> _Result:
        started = time.monotonic()
        try:
            return call(*arguments)
        finally:
            self.seconds += time.monotonic() - started

    async def run(self, call: Callable[..., _Result], *arguments: Any) -> _Result:
        """Make a call and await it. Cancelling the wait does not end the call; closing the engine does."""
        return await asyncio.shield(self.submit(call, *arguments))
