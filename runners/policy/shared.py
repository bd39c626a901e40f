"""What many rollouts of a process use together: made once, by whoever asks first."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Shared(Generic[Key, Value]):
    """Values by key. Who asks while one is made waits for it; one whose making failed is made again for the next.

    make: makes the value of a key. kept: how many of the newest are remembered; None for all.
    """

    def __init__(self, make: Callable[[Key], Awaitable[Value]], kept: int | None = None):
        self._make = make
        self._kept = kept
        self._tasks: dict[Key, asyncio.Task[Value]] = {}

    async def get(self, key: Key) -> Value:
        """The value. Raises what making it raises."""
        task = self._tasks.get(key)
        if task is None or (task.done() and (task.cancelled() or task.exception() is not None)):
            self._tasks.pop(key, None)
            task = self._tasks[key] = asyncio.ensure_future(self._make(key))
            if self._kept is not None:
                for oldest in list(self._tasks)[: -self._kept]:
                    del self._tasks[oldest]
        return await asyncio.shield(task)  # a rollout that is cancelled must not take it from the others

    def forget(self, key: Key) -> None:
        """Make it again for the next who asks."""
        self._tasks.pop(key, None)

    async def close(self) -> list[Value]:
        """Give up what is being made; returns what was made."""
        tasks, self._tasks = list(self._tasks.values()), {}
        for task in tasks:
            task.cancel()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        return [value for value in found if not isinstance(value, BaseException)]
