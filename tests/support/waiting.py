"""Waiting for what other tasks, threads or processes do and tell nobody: an event serves where there is one."""

import asyncio
import inspect
from collections.abc import Callable
from typing import Any


async def until(condition: Callable[[], Any], seconds: float = 60, every: float = 0.02) -> Any:
    """Return what ``condition``, or what it awaits, gives once that is true. TimeoutError after so many seconds."""
    async with asyncio.timeout(seconds):
        while True:
            value = condition()
            if inspect.isawaitable(value):
                value = await value
            if value:
                return value
            await asyncio.sleep(every)
