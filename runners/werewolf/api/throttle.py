"""Limits concurrent calls to an endpoint and their rate."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable

Sleep = Callable[[float], Awaitable[None]]
"""Waits for a number of seconds."""


class Throttle:
    """Admits calls in the order of their arrival, within each caller's limits on all running calls.

    clock: in seconds. sleep: waits for seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, sleep: Sleep = asyncio.sleep):
        self._clock = clock
        self._sleep = sleep
        self._running = 0
        self._latest_start = float("-inf")
        self._paused_until = float("-inf")
        self._door = asyncio.Lock()
        self._ended = asyncio.Event()

    @contextlib.asynccontextmanager
    async def slot(self, most: int, spacing_seconds: float = 0.0) -> AsyncIterator[None]:
        """Wait until fewer than ``most`` calls run and the latest began ``spacing_seconds`` ago."""
        async with self._door:
            while self._running >= most:
                self._ended.clear()
                await self._ended.wait()
            while (early := max(self._latest_start + spacing_seconds, self._paused_until) - self._clock()) > 0:
                await self._sleep(early)
            self._running += 1
            self._latest_start = self._clock()
        try:
            yield
        finally:
            self._running -= 1
            self._ended.set()

    def pause(self, seconds: float) -> None:
        """Start no call for ``seconds``."""
        self._paused_until = max(self._paused_until, self._clock() + seconds)
