"""A cache of asynchronously made values, shared by the rollouts of a process."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Shared(Generic[Key, Value]):
    """Values by key. Concurrent callers wait for one ``make``; a failed one is retried by the next caller.

    make: makes the value of a key. kept: size of the cache, which drops the oldest; None: unlimited.
    seconds: age at which a value is made again; None: never.
    """

    def __init__(self, make: Callable[[Key], Awaitable[Value]], kept: int | None = None, seconds: float | None = None):
        self._make = make
        self._kept = kept
        self._seconds = seconds
        self._tasks: dict[Key, asyncio.Task[Value]] = {}

    async def get(self, key: Key) -> Value:
        """The value. Raises errors of ``make``."""
        task = self._tasks.get(key)
        if task is None or (task.done() and (task.cancelled() or task.exception() is not None)):
            self._tasks.pop(key, None)
            task = self._tasks[key] = asyncio.ensure_future(self._make(key))
            if self._seconds is not None:
                asyncio.get_running_loop().call_later(self._seconds, self._expire, key, task)
            if self._kept is not None:
                for oldest in list(self._tasks)[: -self._kept]:
                    del self._tasks[oldest]
        return await asyncio.shield(task)  # cancelling one rollout must not cancel it for others

    def forget(self, key: Key) -> None:
        """Drop the value; the next caller makes it again."""
        self._tasks.pop(key, None)

    def _expire(self, key: Key, task: asyncio.Task[Value]) -> None:
        if self._tasks.get(key) is task:
            self.forget(key)

    async def close(self) -> list[Value]:
        """Cancel values being made; returns the others."""
        tasks, self._tasks = list(self._tasks.values()), {}
        for task in tasks:
            task.cancel()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        return [value for value in found if not isinstance(value, BaseException)]
