"""Polling for effects of other tasks, threads or processes; where there is an event, wait for that."""

import asyncio
import inspect
from collections.abc import Callable
from typing import Any


async def until(condition: Callable[[], Any], seconds: float = 60, every: float = 0.02) -> Any:
    """Return the first true value of ``condition`` (awaited if needed). TimeoutError after so many seconds."""
    async with asyncio.timeout(seconds):
        while True:
            value = condition()
            if inspect.isawaitable(value):
                value = await value
            if value:
                return value
            await asyncio.sleep(every)
