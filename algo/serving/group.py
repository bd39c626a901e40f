"""A group of vLLM servers that stay in service: a dead one is started again, or taken out until it can be used."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from algo.serving.preconditions import ServingDied, ServingError
from algo.serving.server import VllmServer

logger = logging.getLogger(__name__)

_Result = TypeVar("_Result")

# A server that has not answered /health for that long, and so many times in a row, is taken for dead.
_UNHEALTHY_SECONDS = 30.0
_UNHEALTHY_ANSWERS = 3
_TAKE_BACK_SECONDS = 30.0


@dataclass
class _Member:
    """A server of the group.

    in_service: runners are told of it, and it has the newest weights.
    coming_back: it is being started again, or looked at whether it can be used again.
    lent: it serves other weights for a while (``ServerGroup.lend``).
    """

    server: VllmServer
    endpoint: str
    in_service: bool = True
    coming_back: asyncio.Task[None] | None = None
    lent: bool = False
    unanswered: int = 0
    unanswered_since: float = 0.0
    next_look: float = 0.0


class ServerGroup:
    """Servers of one policy. Its methods belong to one event loop, one call at a time.

    ``restarts`` is how often servers were started again.
    ``update`` brings a server that has come back up to date before it is in service again; None: there is nothing to
    bring, what it starts with is what it is to serve.
    """

    def __init__(
        self, servers: Sequence[VllmServer], urls: Sequence[str], max_restarts: int, progress: Callable[[str], None]
    ) -> None:
        """servers: all in service. urls: what clients are told of each, without /v1."""
        self._members = [_Member(server, f"{url.rstrip('/')}/v1") for server, url in zip(servers, urls, strict=True)]
        self._max_restarts = max_restarts
        self._progress = progress
        self._last_death: ServingError | None = None
        self._starts_held = False
        self.restarts = 0
        self.update: Callable[[VllmServer], Awaitable[None]] | None = None

    @property
    def endpoints(self) -> tuple[str, ...]:
        """Base URLs for OpenAI clients, ending in ``/v1``, of the servers in service.

        Never empty: while none is in service, those that are coming back.
        """
        return (
            tuple(member.endpoint for member in self._members if member.in_service)
            or tuple(member.endpoint for member in self._members if member.coming_back)
            or tuple(member.endpoint for member in self._members)
        )

    @property
    def servers(self) -> tuple[VllmServer, ...]:
        """The servers in service."""
        return tuple(member.server for member in self._members if member.in_service)

    async def ask(
        self, call: Callable[[VllmServer], Awaitable[_Result]], loses_refusing: bool = False
    ) -> dict[VllmServer, _Result]:
        """Ask every server in service at once; returns the answers.

        A server that turns out to be dead is taken out, and its answer missing; an error of one that is alive is
        raised, or with ``loses_refusing`` counts as its death.
        """
        members = [member for member in self._members if member.in_service]
        outcomes = await asyncio.gather(*(call(member.server) for member in members), return_exceptions=True)
        answers: dict[VllmServer, _Result] = {}
        for member, outcome in zip(members, outcomes, strict=True):
            if not isinstance(outcome, BaseException):
                answers[member.server] = outcome
            elif isinstance(outcome, ServingError) and loses_refusing and not await _is_dead(member.server):
                self._lose(member, outcome)
            elif isinstance(outcome, ServingError) and await _is_dead(member.server):
                self._lose(member, member.server.no_longer_answers(outcome))
            else:
                raise outcome
        return answers

    async def check_alive(self) -> None:
        """See to servers that have died or come back. Raises ServingDied when none is left and none will come back."""
        await together(self._look_after(member) for member in self._members)
        self._require_hope()

    async def wait_for_a_server(self) -> None:
        """Return once a server is in service. Raises ServingDied when none will be."""
        while not self.servers:
            self._require_hope()
            await self._wait_for_one_to_come_back()

    async def wait_until_none_is_coming_back(self) -> None:
        """Return once no server is being started or looked at."""
        while any(member.coming_back for member in self._members):
            await self._wait_for_one_to_come_back()

    def take_in_restarted(self) -> None:
        """Put servers that have come back in service, for a caller that brings all servers up to date now."""
        for member in self._members:
            task = member.coming_back
            if task is not None and task.done() and not task.cancelled() and task.exception() is None:
                member.coming_back, member.in_service = None, True

    def lend(self, count: int) -> list[VllmServer]:
        """Take servers out of service, which are not looked after until ``give_back``.

        Raises ServingError unless another one stays in service.
        """
        lent = [member for member in self._members if member.in_service][1:][-count:]
        if len(lent) < count:
            raise ServingError(f"{count} servers cannot be lent: {len(self.servers)} are in service, and one must stay")
        for member in lent:
            member.in_service, member.lent = False, True
        return [member.server for member in lent]

    async def give_back(self) -> None:
        """Bring lent servers up to date and put them in service again; one that fails in this is lost."""
        lent = [member for member in self._members if member.lent]
        for member in lent:
            member.lent, member.coming_back = False, asyncio.create_task(asyncio.sleep(0))
        await together(member.coming_back for member in lent)
        await together(self._take_back(member) for member in lent)

    def hold_starts(self) -> None:
        """Start no server again until ``allow_starts``: others need the GPUs."""
        self._starts_held = True

    def allow_starts(self) -> None:
        """Start servers that have died since ``hold_starts``."""
        self._starts_held = False
        for member in self._members:
            if not member.in_service and member.coming_back is None and member.server.launch is not None:
                assert self._last_death is not None
                self._lose(member, self._last_death)

    async def stop(self) -> None:
        """End started servers, by force if it takes too long; attached ones are left running. May be called again."""
        coming_back = [member.coming_back for member in self._members if member.coming_back]
        for task in coming_back:
            task.cancel()
        await asyncio.gather(*coming_back, return_exceptions=True)
        await asyncio.gather(*(member.server.stop() for member in self._members))

    async def _look_after(self, member: _Member) -> None:
        if member.lent:
            return
        if member.coming_back is not None:
            if member.coming_back.done():
                await self._take_back(member)
        elif member.in_service:
            await self._check_health(member)
        elif member.server.launch is None and time.monotonic() >= member.next_look:
            member.coming_back = asyncio.create_task(member.server.check_attached(self.update is not None))

    async def _check_health(self, member: _Member) -> None:
        try:
            await member.server.check_health()
        except ServingDied as error:
            self._lose(member, error)
        except ServingError as error:
            if not member.unanswered:
                member.unanswered_since = time.monotonic()
            member.unanswered += 1
            silent = time.monotonic() - member.unanswered_since
            if member.unanswered >= _UNHEALTHY_ANSWERS and silent >= _UNHEALTHY_SECONDS:
                self._lose(member, member.server.no_longer_answers(error))
        else:
            member.unanswered = 0

    def _lose(self, member: _Member, error: ServingError) -> None:
        """Take a dead server out, and begin to bring it back if that is possible."""
        was_in_service, member.in_service, member.unanswered = member.in_service, False, 0
        self._last_death = error
        url, most = member.server.base_url, self._max_restarts
        if member.server.launch is None:
            member.next_look = time.monotonic() + _TAKE_BACK_SECONDS
            if was_in_service:
                logger.error("%s is not used until it can be again: %s", url, error)
        elif self._starts_held:
            logger.error("vLLM on %s died asleep; it is started again when the others wake: %s", url, error)
        elif self.restarts < most:
            self.restarts += 1
            logger.error("starting vLLM on %s again (restart %d of %d): %s", url, self.restarts, most, error)
            start = member.server.start(self._progress, weights_follow=self.update is not None)
            member.coming_back = asyncio.create_task(start)
        else:
            logger.error("vLLM on %s is not started again (serving.max_restarts is %d): %s", url, most, error)

    async def _take_back(self, member: _Member) -> None:
        """A server has come back, or has failed to: bring it up to date and put it in service, or lose it again."""
        assert member.coming_back is not None
        outcome, member.coming_back = member.coming_back, None
        try:
            outcome.result()
            if self.update is not None:
                await self.update(member.server)
        except ServingError as error:
            self._lose(member, error)
        else:
            member.in_service = True
            logger.info("vLLM on %s is back in service", member.server.base_url)

    async def _wait_for_one_to_come_back(self) -> None:
        coming_back = [member.coming_back for member in self._members if member.coming_back]
        await asyncio.wait(coming_back, return_when=asyncio.FIRST_COMPLETED)
        for member in self._members:
            if member.coming_back is not None and member.coming_back.done():
                await self._take_back(member)

    def _require_hope(self) -> None:
        if not any(member.in_service or member.coming_back for member in self._members):
            assert self._last_death is not None
            raise self._last_death


async def together(calls: Iterable[Any]) -> None:
    """Await all; when one fails, the others are cancelled and awaited before its error is raised."""
    tasks = [asyncio.ensure_future(call) for call in calls]
    try:
        await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


async def _is_dead(server: VllmServer) -> bool:
    try:
        await server.check_health()
    except ServingError:
        return True
    return False
