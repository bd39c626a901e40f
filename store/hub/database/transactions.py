"""One call is one transaction, done again when the database undid it because of others, or because it went away."""

import asyncio
import functools
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

from store.hub.database.database import DatabaseAway

_AGAIN_SECONDS = 5.0

P = ParamSpec("P")
Result = TypeVar("Result")


def in_one_transaction(
    method: Callable[Concatenate[Any, P], Awaitable[Result]],
) -> Callable[Concatenate[Any, P], Awaitable[Result]]:
    """All that a call changes is kept, or nothing of it; the stock methods commit bit by bit.

    What the database undid because of others, or because it went away, is done again for some seconds.
    """

    @functools.wraps(method)
    async def wrapper(self: Any, *args: P.args, **kwargs: P.kwargs) -> Result:
        is_part = self.collections.database.in_transaction()
        deadline = time.monotonic() + _AGAIN_SECONDS
        while True:
            try:
                async with self.collections.atomic(mode="rw", commit=True):
                    return await method(self, *args, **kwargs)
            except DatabaseAway as error:
                if is_part or not error.undone or time.monotonic() > deadline:
                    raise
            await asyncio.sleep(random.uniform(0.01, 0.1))

    return wrapper


def alone_with_its_rollout(
    method: Callable[Concatenate[Any, str, P], Awaitable[Result]],
) -> Callable[Concatenate[Any, str, P], Awaitable[Result]]:
    """One transaction, in which nobody else changes the rollout of that id or what belongs to it."""

    @functools.wraps(method)
    async def wrapper(self: Any, rollout_id: str, *args: P.args, **kwargs: P.kwargs) -> Result:
        await self.collections.lock_rollouts([rollout_id])
        return await method(self, rollout_id, *args, **kwargs)

    return in_one_transaction(wrapper)
