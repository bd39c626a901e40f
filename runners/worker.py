"""A runner: dequeues rollouts, plays many at once, stores their spans, then sets their status.

A ``Play`` implements the workload. Order matters to the stock hub, whose terminal states are not final: the last span
is stored before the status is set, and a rollout that the hub has reassigned or cancelled meanwhile keeps its status.
"""

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from tenacity import AsyncRetrying, RetryCallState, RetryError, retry_if_exception_type, wait_exponential

from runners.attempt_spans import AttemptSpans
from runners.errors import CannotPlay, PolicyUnavailable
from runners.play import Play
from runners.uploads import SpansRejected, SpanUploader
from store.client import AttemptKey, NotAHub, StoreClient, StoreUnreachable, describe_error
from store.protocol import CLOSED, AttemptedRollout, AttemptStatus, Span
from store.token_spans import OutcomeSpan

logger = logging.getLogger(__name__)

_MIN_POLL_SECONDS, _MAX_POLL_SECONDS = 0.1, 2.0
_REPORT_TIMEOUT_SECONDS = 10.0
_DEQUEUE_TIMEOUT_SECONDS = 1.0
_HEARTBEATS_PER_TIMEOUT = 4
"""Heartbeats of a rollout within its heartbeat timeout."""
_HEARTBEAT_LOOK_SECONDS = 0.5
"""How often to look whether a rollout with a shorter interval has begun."""
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 4.0, 64.0
"""Pauses of a runner that cannot play, each twice the one before."""
_MOST_PAUSES = 3
"""After so many a runner that has played nothing since its start exits."""

_OPEN_ATTEMPTS = ("preparing", "running", "unresponsive")


@dataclass
class WorkerStats:
    """Counts of rollouts by how they ended, and of model calls."""

    finished: int = 0
    failed: int = 0
    handed_back: int = 0
    turns: int = 0


class Worker:
    """Plays up to ``max_concurrent`` rollouts until it is stopped.

    max_rollouts: stop after taking this many; None: no limit.
    idle_exit_seconds: stop after this long without a rollout; None: never.
    heartbeat_seconds: interval of the worker's heartbeats.
    """

    def __init__(
        self,
        client: StoreClient,
        play: Play,
        worker_id: str,
        max_concurrent: int = 8,
        max_rollouts: int | None = None,
        idle_exit_seconds: float | None = None,
        heartbeat_seconds: float = 10.0,
    ):
        self._client = client
        self._play = play
        self.worker_id = worker_id
        self._max_concurrent = max_concurrent
        self._max_rollouts = max_rollouts
        self._idle_exit = idle_exit_seconds
        self._heartbeat_seconds = heartbeat_seconds
        self._uploader = SpanUploader(client)
        self._active: dict[asyncio.Task[None], _ActiveRollout] = {}
        self._taking: asyncio.Task[None] | None = None
        self._handing_back = False
        self._taken = 0
        self._has_played = False
        self._failures = self._pauses = 0
        """Since a rollout was played: those that failed before their first span, and pauses."""
        self._last_failure = ""
        self._draining = asyncio.Event()
        self.stats = WorkerStats()
        self.ready = False
        """Whether the hub has answered, so that rollouts can be taken."""

    @property
    def playing(self) -> int:
        return len(self._active)

    def drain(self) -> None:
        """Take no more rollouts; ``run`` returns when those in flight are finished."""
        self._draining.set()

    def hand_back(self) -> None:
        """Take no more rollouts and return those in flight to the queue. A second call changes nothing."""
        if self._handing_back:  # to cancel again would end the reports under way
            return
        self._draining.set()
        self._handing_back = True
        for task, active in self._active.items():
            if active.begun:  # others check the flag when they begin
                task.cancel()
        if self._taking is not None:  # rollouts in a late response must time out
            asyncio.get_running_loop().call_later(_DEQUEUE_TIMEOUT_SECONDS, self._taking.cancel)

    async def run(self) -> WorkerStats:
        """Play until drained, handed back, idle for too long or at ``max_rollouts``.

        Raises StoreUnreachable if the hub stays unreachable longer than the client's timeout, CannotPlay if several
        rollouts fail and none succeeds.
        """
        await self._client.wait_until_reachable()
        self.ready = True
        logger.info("%s: ready, up to %d rollouts at a time", self.worker_id, self._max_concurrent)
        background = [asyncio.create_task(self._uploader.run()), asyncio.create_task(self._heartbeat())]
        self._taking = taking = asyncio.create_task(self._take_rollouts())
        try:
            # Background tasks end only by raising.
            await asyncio.wait([taking, *background], return_when=asyncio.FIRST_COMPLETED)
            for task in (taking, *background):
                if task.done() and not task.cancelled():
                    task.result()
            while self._active:
                await asyncio.wait([*self._active, *background], return_when=asyncio.FIRST_COMPLETED)
                for task in background:
                    if task.done():
                        task.result()
        finally:
            taking.cancel()
            for active in self._active:
                active.cancel()
            await asyncio.gather(taking, *self._active, return_exceptions=True)
            for task in background:
                task.cancel()
            await asyncio.gather(*background, return_exceptions=True)
        return self.stats

    async def _take_rollouts(self) -> None:
        poll, idle_since, answered = _MIN_POLL_SECONDS, time.monotonic(), True
        while not self._draining.is_set():
            free = self._max_concurrent - len(self._active)
            if self._max_rollouts is not None:
                free = min(free, self._max_rollouts - self._taken)
            if self._at_fault:
                free = min(free, 1)
            rollouts: Sequence[AttemptedRollout] = []
            if free > 0:
                answered_before, answered = answered, True
                try:
                    rollouts = await self._client.dequeue_many_rollouts(limit=free, worker_id=self.worker_id)
                except (TimeoutError, aiohttp.ClientError, NotAHub) as error:  # the heartbeat raises if this lasts
                    answered = False
                    if answered_before:
                        logger.warning(
                            "dequeue failed (%s); rollouts in a lost answer time out and are retried",
                            describe_error(error),
                        )
                if not answered_before:
                    idle_since = time.monotonic()  # the queue may have had rollouts in the meantime
            for rollout in rollouts:
                self._start(rollout)
            if self._taken == self._max_rollouts:
                return
            if self._active:
                idle_since = time.monotonic()
            elif self._idle_exit is not None and answered and time.monotonic() - idle_since > self._idle_exit:
                logger.info("%s: no rollout for %.0f s, exiting", self.worker_id, self._idle_exit)
                return
            poll = _MIN_POLL_SECONDS if rollouts else min(poll * 1.5, _MAX_POLL_SECONDS)
            await self._wait_for_slot(poll)
            if rollouts and self._at_fault:
                await self._back_off()

    @property
    def _at_fault(self) -> bool:
        """Whether this runner seems unable to play any rollout; a single failure may be due to its task."""
        return self._failures > 1

    async def _back_off(self) -> None:
        """Leave the queue to other runners, the longer the more rollouts fail here, unless one is played or draining
        begins meanwhile."""
        # A runner that fails at once is always free: it would take the whole queue, and use up every attempt.
        in_progress = any(active.in_progress for active in self._active.values())
        if self._pauses >= _MOST_PAUSES and not self._has_played and not in_progress:
            raise CannotPlay(f"this runner cannot play ({self._last_failure})")
        pause = min(_FIRST_PAUSE_SECONDS * 2**self._pauses, _LONGEST_PAUSE_SECONDS)
        self._pauses += 1
        logger.warning("this runner cannot play (%s): waiting %d s for its next rollout", self._last_failure, pause)
        end = time.monotonic() + pause
        while self._at_fault and not self._draining.is_set() and time.monotonic() < end:
            await self._wait_for_slot(_MAX_POLL_SECONDS)

    async def _wait_for_slot(self, seconds: float) -> None:
        """Wait until a rollout ends, draining begins, or ``seconds`` have passed."""
        draining = asyncio.create_task(self._draining.wait())
        full = len(self._active) >= self._max_concurrent
        await asyncio.wait(
            [draining, *self._active], timeout=None if full else seconds, return_when=asyncio.FIRST_COMPLETED
        )
        draining.cancel()

    def _start(self, rollout: AttemptedRollout) -> None:
        self._taken += 1
        silence = rollout.config.unresponsive_seconds
        heartbeat_interval = math.inf if silence is None else silence / _HEARTBEATS_PER_TIMEOUT
        active = _ActiveRollout((rollout.rollout_id, rollout.attempt.attempt_id), heartbeat_interval)
        task = asyncio.create_task(self._play_one(rollout, active), name=rollout.rollout_id)
        self._active[task] = active
        task.add_done_callback(self._active.pop)

    async def _play_one(self, rollout: AttemptedRollout, active: "_ActiveRollout") -> None:
        """Play one rollout and report its end. No error of a rollout ends the worker."""
        key = active.key
        active.begun = True
        played = False

        def take(span: Span) -> None:
            nonlocal played
            played = self._has_played = True
            self._failures = self._pauses = 0
            self._uploader.add(span)

        try:
            if self._handing_back:
                raise asyncio.CancelledError
            spans = AttemptSpans(take, key)
            result = await self._play(rollout, spans.add_turn)
            spans.add_result(result, time.time())
        except asyncio.CancelledError:
            if active.dropped:
                await self._uploader.discard(key)
                return
            self.stats.handed_back += 1
            # Bounded while the hub is unreachable; its timeout then retries the rollout.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_REPORT_TIMEOUT_SECONDS):
                    await self._give_up(active, "handed back by its runner")
            raise
        except Exception as error:  # the other rollouts go on; the hub retries this one
            expected = isinstance(error, (CannotPlay, SpansRejected))
            logger.error("rollout %s, attempt %s failed: %s", *key, error, exc_info=None if expected else error)
            self.stats.failed += 1
            reason = f"{type(error).__name__}: {error}"
            # An unreachable policy server affects all runners, and has been waited for; another endpoint may
            # reject this runner's key.
            if not played and not isinstance(error, (PolicyUnavailable, SpansRejected)):
                self._failures, self._last_failure = self._failures + 1, reason
            await _report_before_ending(self._give_up(active, reason))
        else:
            active.ending = True
            await _report_before_ending(self._report_finished(active, result))

    async def _report_finished(self, active: "_ActiveRollout", result: OutcomeSpan) -> None:
        """Store a finished rollout's last spans, then its status; retries for the client's timeout."""

        async def report() -> bool:
            await self._uploader.finish(active.key)
            return await self._report_status(active.key, "succeeded")

        async def wait_for_hub(state: RetryCallState) -> None:
            error = state.outcome.exception()  # type: ignore[union-attr]
            logger.warning("%s: its status could not be reported (%s); retrying", result.task, describe_error(error))
            await self._client.wait_until_reachable()  # an outage has its own timeout

        retrying = AsyncRetrying(
            retry=retry_if_exception_type((aiohttp.ClientError, TimeoutError)),
            wait=wait_exponential(_MIN_POLL_SECONDS, max=_MAX_POLL_SECONDS),
            stop=lambda state: state.idle_for > self._client.retry_seconds,
            before_sleep=wait_for_hub,
        )
        try:
            reported = await retrying(report)
        except RetryError as error:
            self.stats.failed += 1
            reason = describe_error(error.last_attempt.exception())
            logger.error("%s is finished, but the hub rejects its status: %s", result.task, reason)
        except SpansRejected as error:
            self.stats.failed += 1
            logger.warning("rollout dropped: %s", error)
            await self._give_up(active, str(error))
        except StoreUnreachable as error:
            self.stats.failed += 1
            logger.error("%s is finished, but its status could not be reported: %s", result.task, error)
        else:
            if not reported:
                self.stats.failed += 1
                return
            self.stats.finished += 1
            self.stats.turns += result.turns
            logger.info("%s: %s, %d turns", result.task, result.summary, result.turns)

    async def _give_up(self, active: "_ActiveRollout", reason: str) -> None:
        active.ending = True
        await self._uploader.discard(active.key)
        try:
            await self._report_status(active.key, "failed", reason)
        except (aiohttp.ClientError, StoreUnreachable, TimeoutError) as error:
            logger.warning(
                "rollout %s: its status could not be reported, so the hub retries it after its timeout: %s",
                active.key[0],
                describe_error(error),
            )

    async def _report_status(self, key: AttemptKey, status: AttemptStatus, reason: str | None = None) -> bool:
        """Report the end of an attempt, unless the hub has closed or replaced it in the meantime.

        Returns whether the attempt has this status now, also if only the response to an earlier report was lost.
        """
        rollout_id, attempt_id = key

        async def look_and_set() -> bool:  # check before every retry: the state may have changed
            closed = (await self._closed([key])).get(key)
            if closed is None:
                await self._client.end_attempt(rollout_id, attempt_id, status, reason)
            elif closed.status != status:
                logger.warning(
                    "rollout %s: %s; not reporting the status of attempt %s", rollout_id, closed.reason, attempt_id
                )
                return False
            return True

        return await self._client.with_retries(look_and_set)

    async def _closed(self, keys: Iterable[AttemptKey]) -> dict[AttemptKey, "_Closed"]:
        """Those of the attempts that the hub has closed, replaced or forgotten."""
        keys = list(keys)
        found = {
            rollout.rollout_id: rollout
            for rollout in await self._client.query_rollouts(rollout_id_in=[rollout_id for rollout_id, _ in keys])
        }
        closed = {}
        for rollout_id, attempt_id in keys:
            rollout = found.get(rollout_id)
            if not isinstance(rollout, AttemptedRollout):
                closed[rollout_id, attempt_id] = _Closed("the hub does not know the rollout; it may have restarted")
            elif rollout.attempt.attempt_id != attempt_id:
                closed[rollout_id, attempt_id] = _Closed("the hub has reassigned the rollout to another runner")
            elif rollout.status in CLOSED or rollout.attempt.status not in _OPEN_ATTEMPTS:
                closed[rollout_id, attempt_id] = _Closed(
                    f"the hub has closed the rollout ({rollout.status})", rollout.attempt.status
                )
        return closed

    async def _heartbeat(self) -> None:
        """Send heartbeats of the worker and its rollouts, and drop rollouts that the hub has closed.

        Detects an unreachable hub also when idle.
        """
        answered = True
        while True:
            try:
                counts = {"playing": self.playing, "finished": self.stats.finished, "failed": self.stats.failed}
                worker = await self._client.update_worker(self.worker_id, {**counts, "time": time.time()})
                if self._active:
                    self._drop(await self._closed(active.key for active in self._active.values()))
                    await self._keep_alive(worker.last_heartbeat_time)
                answered = True
            except (TimeoutError, aiohttp.ClientError) as error:
                if answered:
                    logger.warning(
                        "heartbeat failed (%s); without it the hub reassigns rollouts", describe_error(error)
                    )
                answered = False
                await self._client.wait_until_reachable()
            await self._wait_for_heartbeat()

    async def _wait_for_heartbeat(self) -> None:
        """Wait for the worker's interval, or the shortest one of its rollouts, some of which may begin meanwhile."""
        begin = time.monotonic()
        while True:
            await asyncio.sleep(min(_HEARTBEAT_LOOK_SECONDS, self._heartbeat_seconds))
            intervals = [active.heartbeat_interval for active in self._active.values() if active.in_progress]
            if time.monotonic() - begin >= min([self._heartbeat_seconds, *intervals]):
                return

    async def _keep_alive(self, hub_time: float | None) -> None:
        """Send heartbeats of rollouts in flight, which send no spans while a slow model samples.

        hub_time: clock of a stock hub, which compares heartbeats with it.
        """
        playing = [
            active for active in self._active.values() if active.in_progress and active.heartbeat_interval < math.inf
        ]
        now = time.monotonic()
        due = [active for active in playing if now - active.last_heartbeat > active.heartbeat_interval]
        if not due:
            return
        if await self._client.keep_alive(
            [active.key for active in playing]
        ):  # all at once, so that fewer requests follow
            due = playing
        elif hub_time is not None:
            for active in due:
                if active.in_progress:
                    await self._client.update_attempt(*active.key, last_heartbeat_time=hub_time)
        for active in due:
            active.last_heartbeat = time.monotonic()

    def _drop(self, closed: Mapping[AttemptKey, "_Closed"]) -> None:
        """Cancel rollouts that the hub has closed, except those that are ending."""
        for task, active in self._active.items():
            if active.key in closed and active.in_progress:
                logger.warning("rollout %s dropped: %s", active.key[0], closed[active.key].reason)
                active.dropped = True
                self.stats.failed += 1
                task.cancel()


async def _report_before_ending(report: Coroutine[Any, Any, None]) -> None:
    """Await the report of a rollout's end; when cancelled, wait for it briefly."""
    reporting = asyncio.create_task(report)
    try:
        await asyncio.shield(reporting)
    except asyncio.CancelledError:
        await asyncio.wait([reporting], timeout=_REPORT_TIMEOUT_SECONDS)
        raise


@dataclass(frozen=True)
class _Closed:
    """Why an attempt is closed at the hub. status: of the attempt; None if unknown."""

    reason: str
    status: str | None = None


@dataclass
class _ActiveRollout:
    """One rollout in flight.

    begun: its task has started, so it handles cancellation. ending: its end is being reported.
    dropped: the hub has closed it, so nothing is reported.
    heartbeat_interval: seconds between heartbeats; infinite without a heartbeat timeout.
    last_heartbeat: monotonic time of the last one.
    """

    key: AttemptKey
    heartbeat_interval: float
    last_heartbeat: float = field(default_factory=time.monotonic)
    begun: bool = False
    ending: bool = False
    dropped: bool = False

    @property
    def in_progress(self) -> bool:
        return self.begun and not (self.ending or self.dropped)
