"""A runner: takes rollouts from the hub, plays many at once, stores their spans, then sets their status.

Knows nothing about Werewolf: what is played is given to it as a ``Play``. Order matters to the
stock hub, whose terminal states do not stick: a game's last span is stored before its status is set, and a
game that the hub has meanwhile given away or cancelled keeps the status it has.
"""

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import aiohttp
from tenacity import AsyncRetrying, RetryCallState, RetryError, retry_if_exception_type, wait_exponential

from runners.attempt_spans import AttemptSpans
from runners.errors import CannotPlay
from runners.play import Play
from runners.uploads import GameForgotten, SpanUploader
from store.client import AttemptKey, NotAHub, StoreClient, StoreUnreachable, describe_error
from store.protocol import AttemptedRollout, AttemptStatus
from store.token_spans import OutcomeSpan

logger = logging.getLogger(__name__)

_SHORTEST_POLL, _LONGEST_POLL = 0.1, 2.0
_LAST_REPORT_SECONDS = 10.0
_LAST_ANSWER_SECONDS = 1.0
_HEARD_WITHIN_SILENCE = 4
"""How often the hub hears of a rollout in the time after which it would give it to another runner."""

_OPEN_ATTEMPTS = ("preparing", "running", "unresponsive")
_CLOSED_ROLLOUTS = ("succeeded", "failed", "cancelled")


@dataclass
class WorkerStats:
    """Rollouts since the start, by how they ended."""

    finished: int = 0
    failed: int = 0
    handed_back: int = 0
    turns: int = 0


class Worker:
    """Plays up to ``games_at_once`` rollouts until it is stopped.

    max_games: stop after taking this many; None means no limit.
    idle_exit_seconds: stop after this long without a rollout to play; None means wait for ever.
    heartbeat_seconds: how often the hub is told that this worker lives, and an absent hub is noticed.
    """

    def __init__(
        self,
        client: StoreClient,
        play: Play,
        worker_id: str,
        games_at_once: int = 8,
        max_games: int | None = None,
        idle_exit_seconds: float | None = None,
        heartbeat_seconds: float = 10.0,
    ):
        self._client = client
        self._play = play
        self.worker_id = worker_id
        self._games_at_once = games_at_once
        self._max_games = max_games
        self._idle_exit = idle_exit_seconds
        self._heartbeat_seconds = heartbeat_seconds
        self._uploader = SpanUploader(client)
        self._games: dict[asyncio.Task[None], _Game] = {}
        self._taking: asyncio.Task[None] | None = None
        self._handing_back = False
        self._taken = 0
        self._draining = asyncio.Event()
        self.stats = WorkerStats()
        self.ready = False
        """Whether the hub has answered, so that rollouts can be taken."""

    @property
    def playing(self) -> int:
        return len(self._games)

    def drain(self) -> None:
        """Take no more rollouts; ``run`` returns when those under way are finished."""
        self._draining.set()

    def hand_back(self) -> None:
        """Take no more rollouts and give up those under way: the hub lets another runner play them."""
        self._draining.set()
        self._handing_back = True
        for task, game in self._games.items():
            if game.begun:  # one that has not would end without telling the hub; it looks at the flag instead
                task.cancel()
        if self._taking is not None:  # an answer on its way can still be handed back; later its games must time out
            asyncio.get_running_loop().call_later(_LAST_ANSWER_SECONDS, self._taking.cancel)

    async def run(self) -> WorkerStats:
        """Play until drained, handed back, idle for too long or out of rollouts.

        Raises StoreUnreachable when the hub stays away longer than the client's patience.
        """
        await self._client.wait_until_reachable()
        self.ready = True
        logger.info("%s: ready, up to %d rollouts at a time", self.worker_id, self._games_at_once)
        background = [asyncio.create_task(self._uploader.run()), asyncio.create_task(self._heartbeat())]
        self._taking = taking = asyncio.create_task(self._take_games())
        try:
            # Only ``taking`` ends by itself; a background task ends by raising.
            await asyncio.wait([taking, *background], return_when=asyncio.FIRST_COMPLETED)
            for task in (taking, *background):
                if task.done() and not task.cancelled():
                    task.result()
            while self._games:
                await asyncio.wait([*self._games, *background], return_when=asyncio.FIRST_COMPLETED)
                for task in background:
                    if task.done():
                        task.result()
        finally:
            taking.cancel()
            for game in self._games:
                game.cancel()
            await asyncio.gather(taking, *self._games, return_exceptions=True)
            for task in background:
                task.cancel()
            await asyncio.gather(*background, return_exceptions=True)
        return self.stats

    async def _take_games(self) -> None:
        poll, idle_since, answered = _SHORTEST_POLL, time.monotonic(), True
        while not self._draining.is_set():
            free = self._games_at_once - len(self._games)
            if self._max_games is not None:
                if self._taken >= self._max_games:
                    return
                free = min(free, self._max_games - self._taken)
            rollouts: Sequence[AttemptedRollout] = []
            if free > 0:
                answered_before, answered = answered, True
                try:
                    rollouts = await self._client.dequeue_many_rollouts(limit=free, worker_id=self.worker_id)
                except (TimeoutError, aiohttp.ClientError, NotAHub) as error:  # the heartbeat sees that this ends
                    answered = False
                    if answered_before:
                        logger.warning(
                            "a dequeue request failed (%s); rollouts in a lost answer must time out",
                            describe_error(error),
                        )
                if not answered_before:
                    idle_since = time.monotonic()  # nobody knows what there was to play in the meantime
            for rollout in rollouts:
                self._start(rollout)
            if self._games:
                idle_since = time.monotonic()
            elif self._idle_exit is not None and answered and time.monotonic() - idle_since > self._idle_exit:
                logger.info("%s: no rollout for %.0f s, leaving", self.worker_id, self._idle_exit)
                return
            poll = _SHORTEST_POLL if rollouts else min(poll * 1.5, _LONGEST_POLL)
            await self._wait_for_room_or_time(poll)

    async def _wait_for_room_or_time(self, seconds: float) -> None:
        """Until a rollout ends, draining begins, or the time is up."""
        draining = asyncio.create_task(self._draining.wait())
        full = len(self._games) >= self._games_at_once
        await asyncio.wait(
            [draining, *self._games], timeout=None if full else seconds, return_when=asyncio.FIRST_COMPLETED
        )
        draining.cancel()

    def _start(self, rollout: AttemptedRollout) -> None:
        self._taken += 1
        silence = rollout.config.unresponsive_seconds
        heard_every = math.inf if silence is None else silence / _HEARD_WITHIN_SILENCE
        game = _Game((rollout.rollout_id, rollout.attempt.attempt_id), heard_every)
        task = asyncio.create_task(self._play_one(rollout, game), name=rollout.rollout_id)
        self._games[task] = game
        task.add_done_callback(self._games.pop)

    async def _play_one(self, rollout: AttemptedRollout, game: "_Game") -> None:
        """Play one rollout and report how it ended. Nothing that happens in a rollout ends the worker."""
        key = game.key
        game.begun = True
        try:
            if self._handing_back:
                raise asyncio.CancelledError
            spans = AttemptSpans(self._uploader.add, key)
            result = await self._play(rollout, spans.add_turn)
            spans.add_result(result, time.time())
        except asyncio.CancelledError:
            if game.unwanted:
                await self._uploader.discard(key)
                return
            self.stats.handed_back += 1
            # "At once" has an end even while the hub is away; then its own time-out hands the rollout back.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LAST_REPORT_SECONDS):
                    await self._give_up(game, "handed back by its runner")
            raise
        except Exception as error:  # whatever went wrong in one game, the others go on; the hub retries it
            expected = isinstance(error, (CannotPlay, GameForgotten))
            logger.error("rollout %s, attempt %s failed: %s", *key, error, exc_info=None if expected else error)
            self.stats.failed += 1
            await self._give_up(game, f"{type(error).__name__}: {error}")
        else:
            game.ending = True
            reporting = asyncio.create_task(self._report_finished(game, result))
            try:
                await asyncio.shield(reporting)
            except asyncio.CancelledError:  # a finished game is not handed back: its report gets a moment to arrive
                await asyncio.wait([reporting], timeout=_LAST_REPORT_SECONDS)
                raise

    async def _report_finished(self, game: "_Game", result: OutcomeSpan) -> None:
        """Store a finished rollout's last spans, then its status, through any outage that the patience covers."""

        async def report() -> bool:
            await self._uploader.finish(game.key)
            return await self._set_status(game.key, "succeeded")

        async def with_retries(state: RetryCallState) -> None:
            error = state.outcome.exception()  # type: ignore[union-attr]
            logger.warning("%s: its end could not be reported (%s); trying again", result.task, describe_error(error))
            await self._client.wait_until_reachable()  # an outage has its own patience

        retrying = AsyncRetrying(
            retry=retry_if_exception_type((aiohttp.ClientError, TimeoutError)),
            wait=wait_exponential(_SHORTEST_POLL, max=_LONGEST_POLL),
            stop=lambda state: state.idle_for > self._client.retry_seconds,
            before_sleep=with_retries,
        )
        try:
            reported = await retrying(report)
        except RetryError as error:
            self.stats.failed += 1
            reason = describe_error(error.last_attempt.exception())
            logger.error("%s is finished, but the hub keeps refusing the end of it: %s", result.task, reason)
        except GameForgotten as error:
            self.stats.failed += 1
            logger.warning("rollout dropped: %s", error)
            await self._give_up(game, str(error))
        except StoreUnreachable as error:
            self.stats.failed += 1
            logger.error("%s is finished, but the hub cannot be told: %s", result.task, error)
        else:
            if not reported:
                self.stats.failed += 1
                return
            self.stats.finished += 1
            self.stats.turns += result.turns
            logger.info("%s: %s, %d turns", result.task, result.summary, result.turns)

    async def _give_up(self, game: "_Game", reason: str) -> None:
        game.ending = True
        await self._uploader.discard(game.key)
        try:
            await self._set_status(game.key, "failed", reason)
        except (aiohttp.ClientError, StoreUnreachable, TimeoutError) as error:
            logger.warning(
                "rollout %s: its end is not reported, the hub must time it out: %s",
                game.key[0],
                describe_error(error),
            )

    async def _set_status(self, key: AttemptKey, status: AttemptStatus, reason: str | None = None) -> bool:
        """Report the end of an attempt, unless the hub has closed or replaced it in the meantime.

        Whether the attempt has this status now: also where an earlier report arrived, and only its answer was lost.
        """
        rollout_id, attempt_id = key

        async def look_and_set() -> bool:  # looks before every try: while a request is on its way things go on
            closed = (await self._closed([key])).get(key)
            if closed is None:
                await self._client.end_attempt(rollout_id, attempt_id, status, reason)
            elif closed.status != status:
                logger.warning(
                    "rollout %s: %s; the end of attempt %s is not reported", rollout_id, closed.reason, attempt_id
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
                closed[rollout_id, attempt_id] = _Closed("the hub no longer knows the rollout; it must have restarted")
            elif rollout.attempt.attempt_id != attempt_id:
                closed[rollout_id, attempt_id] = _Closed("the hub has given the rollout to another runner")
            elif rollout.status in _CLOSED_ROLLOUTS or rollout.attempt.status not in _OPEN_ATTEMPTS:
                closed[rollout_id, attempt_id] = _Closed(
                    f"the hub has closed the rollout ({rollout.status})", rollout.attempt.status
                )
        return closed

    async def _heartbeat(self) -> None:
        """Tell the hub now and then that this runner lives, and drop the rollouts that it no longer wants.

        Also how an unreachable hub is noticed when idle.
        """
        while True:
            try:
                counts = {"playing": self.playing, "finished": self.stats.finished, "failed": self.stats.failed}
                told = await self._client.update_worker(self.worker_id, {**counts, "time": time.time()})
                if self._games:
                    self._drop(await self._closed(game.key for game in self._games.values()))
                    await self._keep_alive(told.last_heartbeat_time)
            except (TimeoutError, aiohttp.ClientError):
                await self._client.wait_until_reachable()
            await asyncio.sleep(self._heartbeat_seconds)

    async def _keep_alive(self, hub_time: float | None) -> None:
        """Tell the hub that the rollouts go on, which spans alone would not while a slow model answers.

        hub_time: a stock hub's clock, which is what it compares with; this machine's may be another.
        """
        playing = [game for game in self._games.values() if game.goes_on and game.heard_every < math.inf]
        now = time.monotonic()
        due = [game for game in playing if now - game.last_heard > game.heard_every]
        if not due:
            return
        if await self._client.keep_alive([game.key for game in playing]):  # all, so that they stay in step
            due = playing
        elif hub_time is not None:
            for game in due:
                if game.goes_on:
                    await self._client.update_attempt(*game.key, last_heartbeat_time=hub_time)
        for game in due:
            game.last_heard = time.monotonic()

    def _drop(self, closed: Mapping[AttemptKey, "_Closed"]) -> None:
        """End the rollouts that the hub no longer wants; those that are ending anyway are left to it."""
        for task, game in self._games.items():
            if game.key in closed and game.goes_on:
                logger.warning("rollout %s dropped: %s", game.key[0], closed[game.key].reason)
                game.unwanted = True
                self.stats.failed += 1
                task.cancel()


@dataclass(frozen=True)
class _Closed:
    """Why the hub wants no end of an attempt. status: of the attempt itself; None where the hub did not say."""

    reason: str
    status: str | None = None


@dataclass
class _Game:
    """One rollout under way.

    begun: its task has started to run, so a cancellation is handled. ending: its end is being reported.
    unwanted: the hub has closed it, so there is nothing to report.
    heard_every: seconds after which the hub should hear of it again; endless where it takes no offence at silence.
    last_heard: when it did, by the monotonic clock.
    """

    key: AttemptKey
    heard_every: float
    last_heard: float = field(default_factory=time.monotonic)
    begun: bool = False
    ending: bool = False
    unwanted: bool = False

    @property
    def goes_on(self) -> bool:
        return self.begun and not (self.ending or self.unwanted)
