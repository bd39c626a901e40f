"""The algorithm's side of the hub: publish a policy, enqueue tasks, wait, read back what was played."""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import aiohttp
from agentlightning import Attempt, EnqueueRolloutRequest, Rollout, RolloutConfig, RolloutMode, Span

from algo.rollouts.adoption import Resumption, find_rollouts, may_be_used, version_of
from algo.rollouts.triplets import FinishedRollout, IncompleteRollout, WrongLearner, read_attempt
from configs.sections.rollout import RolloutSettings
from store.client import PatientStoreClient
from store.finished import FinishedGames
from store.schema import IDEMPOTENCY_KEY, PolicyResources, Task
from store.token_spans import MalformedSpan, TaskKind

logger = logging.getLogger(__name__)

FAILED_GAME = "failed_game"
SUPERSEDED_ATTEMPT = "superseded_attempt"
UNREADABLE_GAME = "unreadable_game"

_POLL_SECONDS = 0.5
_LOOKS_FOR_SPANS = 10
_FULL_LOOK_SECONDS = 5.0
_LONELY_SECONDS = 30.0
_CANCEL_SECONDS = 10.0
_TERMINAL = ("succeeded", "failed", "cancelled")
_PROCESS = "process"
"""Of a rollout's metadata: which of the run's processes enqueued it (``Resumption.number``; 0 began the run)."""
_BEST_TO_ADOPT = ("succeeded", "running", "preparing", "requeuing", "queuing")


class NothingFinished(RuntimeError):
    """Not one game of a step could be used; going on would train on nothing. The message gives the reasons."""


@dataclass(frozen=True)
class Progress:
    """How far a step's games are."""

    finished: int
    failed: int
    playing: int
    waiting: int


@dataclass(frozen=True)
class PlayedRollouts:
    """What came back of a step's games.

    finished: games with all their spans, in the order of their tasks.
    failures: games that could not be used, counted by reason, as the runner gave it: an error's name, and its text.
    retried: attempts that failed and were followed by another, counted by reason likewise.
    turns_stored: turn spans of all attempts that the store holds for these games.
    left_out: turn spans outside ``finished``, counted by reason.
    """

    finished: tuple[FinishedRollout, ...]
    failures: Counter[str]
    retried: Counter[str]
    turns_stored: int
    left_out: Counter[str]

    @property
    def calls(self) -> list[tuple[float, float]]:
        """Start and end of every model call of the finished games, in seconds by the runners' clocks."""
        return [call for game in self.finished for call in game.calls]

    @property
    def own_failures(self) -> Counter[str]:
        """What the actors of finished games failed with by their own doing (``OutcomeSpan.own_failure``)."""
        return Counter(game.outcome.own_failure for game in self.finished if game.outcome.own_failure)

    def failure_metrics(self) -> dict[str, float]:
        """How many games failed and how many attempts had to be repeated, in all and by kind of reason, for the log."""
        metrics = {"games/failed": float(self.failures.total()), "games/retried": float(self.retried.total())}
        for name, reasons in (("failed", self.failures), ("retried", self.retried)):
            for reason, count in reasons.items():
                kind = f"games/{name}/{_kind_of(reason)}"
                metrics[kind] = metrics.get(kind, 0.0) + count
        return metrics


@dataclass(frozen=True)
class _EndedGame:
    """A game that was read and not yet taken; the fields mean what they mean in ``PlayedRollouts``."""

    finished: FinishedRollout | None
    failures: Counter[str]
    retried: Counter[str]
    turns_stored: int
    left_out: Counter[str]


@dataclass(frozen=True)
class _OpenGame:
    """A game that was enqueued and not yet read. mode: ``train`` or ``val``, as agentlightning names them."""

    task: Task
    resources: PolicyResources
    mode: RolloutMode


class RolloutQueue:
    """Plays games through the hub. Survives a hub that restarts with an empty memory.

    Games of several steps may be in flight at once: ``enqueue`` adds some, ``collect`` waits for some; ``watch`` waits
    for whichever end first, and ``take`` hands them over.
    """

    def __init__(
        self,
        client: PatientStoreClient,
        kind: TaskKind,
        config: RolloutSettings,
        resumption: Resumption | None = None,
    ):
        """kind: of all tasks. resumption: where the run goes on, if it was begun before; None uses what is found."""
        self._client = client
        self._kind = kind
        self._config = config
        self._resumption = resumption
        self._open: dict[str, _OpenGame] = {}
        self._ended: dict[str, _EndedGame] = {}  # by task, in the order in which they ended
        self.unclaimed = 0
        """Rollouts that no runner had taken when ``watch`` looked last at all that it waits for."""

    async def play(
        self,
        tasks: Sequence[Task],
        resources: PolicyResources,
        check_alive: Callable[[], Awaitable[object]],
        on_progress: Callable[[Progress], None],
        resumed: bool = False,
        mode: RolloutMode = "train",
    ) -> PlayedRollouts:
        """Enqueue games and wait for them: ``enqueue``, then ``collect``."""
        await self.enqueue(tasks, resources, resumed, mode)
        return await self.collect(tasks, check_alive, on_progress)

    async def enqueue(
        self,
        tasks: Sequence[Task],
        resources: PolicyResources,
        resumed: bool = False,
        mode: RolloutMode = "train",
        oldest_version: int = 0,
    ) -> int:
        """Publish the policy and enqueue the games; returns how many of them the hub had, in whatever state.

        resumed: an earlier process of this run may have enqueued some of the games; see ``adopt``.
        oldest_version: those that it enqueued for an older policy are enqueued anew.
        """
        await self._publish([resources])
        missing, known = list(tasks), 0
        if resumed:
            missing, known = await self.adopt(tasks, resources, mode, oldest_version)
        if missing:
            await self._enqueue([_OpenGame(task, resources, mode) for task in missing])
        return known

    async def serve_at(
        self, endpoints: tuple[str, ...], team: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    ) -> None:
        """Publish the policies of all open games anew, under the same ids, as served at these endpoints from now on.

        team: those of each policy, where several learn.
        """
        self._open = {
            rollout_id: replace(game, resources=game.resources.served_at(endpoints, team))
            for rollout_id, game in self._open.items()
        }
        await self._publish(game.resources for game in self._open.values())

    async def collect(
        self,
        tasks: Sequence[Task],
        check_alive: Callable[[], Awaitable[object]],
        on_progress: Callable[[Progress], None],
    ) -> PlayedRollouts:
        """Wait until each of these games has finished or failed for good, and read them.

        tasks: enqueued before; other games that are in flight are left alone.
        check_alive: called every few seconds; what it raises ends the wait.
        Raises NothingFinished if not one of the games can be used.
        """
        wanted = {task.task_id for task in tasks}
        await self.watch(wanted, lambda: not self._still_open(wanted), check_alive, on_progress)
        return self.take(tasks)

    async def watch(
        self,
        watched: Collection[str],
        enough: Callable[[], bool],
        look_after: Callable[[], Awaitable[object]],
        on_progress: Callable[[Progress], None],
    ) -> None:
        """Read games as they end, until it is enough; other games that are in flight are left alone.

        watched: ids of their tasks; ``look_after``, called every few seconds, may enqueue further ones and add them.
            What it raises ends the wait.
        enough: asked again whenever games have ended (``ended``).
        """
        looks: Counter[str] = Counter()
        ended_since = FinishedGames(self._client)
        statuses: Counter[str] = Counter()
        next_full_look, lonely_since = 0.0, time.monotonic()
        while not enough():
            if time.monotonic() >= next_full_look:
                await look_after()
                next_full_look = time.monotonic() + _FULL_LOOK_SECONDS
                waiting = self._still_open(watched)
                rollouts = await self._client.query_rollouts(rollout_id_in=waiting)
                known = {rollout.rollout_id for rollout in rollouts}
                await self._restore_forgotten([rollout_id for rollout_id in waiting if rollout_id not in known])
                closed = [rollout for rollout in rollouts if rollout.status in _TERMINAL]
                statuses = Counter(rollout.status for rollout in rollouts if rollout.status not in _TERMINAL)
                self.unclaimed = statuses["queuing"] + statuses["requeuing"]
            else:  # in between, only what has ended since
                closed = await ended_since.look(self._still_open(watched))
            for rollout in sorted(closed, key=lambda rollout: rollout.end_time or 0.0):
                spans = list(await self._client.query_spans(rollout.rollout_id))
                if rollout.status == "succeeded" and not spans and looks[rollout.rollout_id] < _LOOKS_FOR_SPANS:
                    looks[rollout.rollout_id] += 1
                    continue  # the hub may just have restarted empty; then the next look finds the game forgotten
                retried = Counter(await self._earlier_failures(rollout))
                game = self._open.pop(rollout.rollout_id)
                self._ended[game.task.task_id] = _read(self._kind, rollout, spans, retried, game.resources)
            games = [self._ended[task_id] for task_id in self.ended(watched)]
            finished, still_open = sum(game.finished is not None for game in games), len(self._still_open(watched))
            playing = min(statuses["preparing"] + statuses["running"], still_open)
            on_progress(Progress(finished, len(games) - finished, playing, still_open - playing))
            if playing or not still_open:
                lonely_since = time.monotonic()
            elif time.monotonic() - lonely_since > _LONELY_SECONDS:
                command = f"python -m {self._kind.runner} --n 8 --store {self._client.server_address_root}"
                logger.warning("%d games wait and no runner takes them; start one: %s", still_open, command)
                lonely_since = time.monotonic()
            if still_open and not enough():
                await asyncio.sleep(_POLL_SECONDS)

    def ended(self, watched: Collection[str]) -> list[str]:
        """Those of the tasks whose games have finished or failed for good, in the order in which they did."""
        return [task_id for task_id in self._ended if task_id in watched]

    def take(self, tasks: Sequence[Task]) -> PlayedRollouts:
        """What came of these tasks, which have ended; it can be taken once.

        Raises NothingFinished if not one of the games can be used.
        """
        games = [self._ended.pop(task.task_id) for task in tasks if task.task_id in self._ended]
        finished = tuple(game.finished for game in games if game.finished is not None)
        failures, retried, left_out = (
            sum((getattr(game, name) for game in games), Counter()) for name in ("failures", "retried", "left_out")
        )
        if not finished:
            reasons = "; ".join(f"{count}x {reason}" for reason, count in failures.most_common(3))
            raise NothingFinished(f"none of {len(tasks)} games can be used: {reasons}. The runners' logs say more")
        return PlayedRollouts(finished, failures, retried, sum(game.turns_stored for game in games), left_out)

    def _still_open(self, watched: Collection[str]) -> list[str]:
        """Ids of the open rollouts of these tasks."""
        return [rollout_id for rollout_id, game in self._open.items() if game.task.task_id in watched]

    async def adopt(
        self, tasks: Sequence[Task], resources: PolicyResources, mode: RolloutMode = "train", oldest_version: int = 0
    ) -> tuple[list[Task], int]:
        """Take up those of the games that an earlier process of the run enqueued, whether they are played yet or not.

        Returns the tasks of which the hub has no game that can be used, which are to be enqueued, and of how many tasks
        it has any game. One cannot be used that was taken back, failed for good (as games do while no policy is
        served), was played by weights that are no more (``Resumption``), or was enqueued for a policy older than
        ``oldest_version``. Of several games of one task (the stock hub may have been given a request twice) the one
        that got furthest counts, the others are taken back.
        """
        found = await find_rollouts(self._client, resources.run_name, {task.task_id for task in tasks})
        missing, republished = [], {resources.resources_id: resources}
        for task in tasks:
            usable = [one for one in found.get(task.task_id, {}).values() if one.status in _BEST_TO_ADOPT]
            candidates = sorted(usable, key=lambda rollout: _BEST_TO_ADOPT.index(rollout.status))
            best = None
            for rollout in candidates:
                if best is None and version_of(rollout) >= oldest_version and await self._may_be_used(rollout):
                    best = rollout
                elif rollout.status not in _TERMINAL:
                    await self._client.take_back(rollout.rollout_id)
            if best is None:
                missing.append(task)
                continue
            assert best.resources_id is not None
            if best.resources_id not in republished:
                # Its policy may be served elsewhere now.
                earlier = resources.model_copy(update={"version": version_of(best)})
                await self._client.update_resources(earlier.resources_id, earlier.encode())
                republished[best.resources_id] = earlier
            self._open[best.rollout_id] = _OpenGame(task, republished[best.resources_id], mode)
        if len(missing) < len(tasks):
            logger.info(
                "%d of %d games were enqueued before; going on with them", len(tasks) - len(missing), len(tasks)
            )
        return missing, len(found)

    async def _may_be_used(self, rollout: Rollout) -> bool:
        if self._resumption is None:
            return True
        weights_change = self._config.max_policy_lag > 0
        newest = self._resumption.newest_version_of((rollout.metadata or {}).get(_PROCESS, 0))
        return await may_be_used(self._client, self._kind, rollout, newest, weights_change)

    async def cancel_open(self) -> None:
        """Take back the games that nobody will read any more, so that no runner plays them in vain."""
        try:
            async with asyncio.timeout(_CANCEL_SECONDS):  # a hub that is away must not hold up the end
                # Asked first: the stock hub would make a finished game a cancelled one.
                rollouts = await self._client.query_rollouts(rollout_id_in=list(self._open)) if self._open else []
                for rollout in rollouts:
                    if rollout.status not in _TERMINAL:
                        await self._client.take_back(rollout.rollout_id)
                    del self._open[rollout.rollout_id]
        except (TimeoutError, aiohttp.ClientError) as error:
            kind = type(error).__name__
            logger.warning("%d games not taken back (%s); runners may still play them", len(self._open), kind)

    async def _enqueue(self, games: Sequence[_OpenGame]) -> None:
        config = RolloutConfig(
            timeout_seconds=self._config.timeout_seconds,
            unresponsive_seconds=self._config.unresponsive_seconds,
            max_attempts=self._config.max_attempts,
            # Without a condition a status ends the game; every way of failing deserves another try.
            retry_condition=["failed", "timeout", "unresponsive"],
        )
        rollouts = await self._client.enqueue_many_rollouts(
            [
                EnqueueRolloutRequest(
                    input=game.task.encode(),
                    mode=game.mode,
                    resources_id=game.resources.resources_id,
                    config=config,
                    metadata={
                        "task_id": game.task.task_id,
                        "run": game.resources.run_name,
                        _PROCESS: self._resumption.number if self._resumption else 0,
                        # A hub that knows it takes a request that is repeated after a lost answer only once.
                        IDEMPOTENCY_KEY: self._idempotency_key(game),
                    },
                )
                for game in games
            ]
        )
        self._open |= {rollout.rollout_id: game for rollout, game in zip(rollouts, games, strict=True)}
        # Again: a hub that restarted in between has the games and no policy to play them by, and nothing would tell.
        await self._publish(game.resources for game in games)

    async def _publish(self, policies: Iterable[PolicyResources]) -> None:
        for resources in {policy.resources_id: policy for policy in policies}.values():
            await self._client.update_resources(resources.resources_id, resources.encode())

    def _idempotency_key(self, game: _OpenGame) -> str:
        key = f"{game.resources.run_name}/{game.task.task_id}"
        # What is enqueued again after a resumption is meant to be played, though the hub may know a game of that name.
        return f"{key}/{self._resumption.number}" if self._resumption else key

    async def _earlier_failures(self, rollout: Rollout) -> list[str]:
        """Why the attempts before the last one failed."""
        last = getattr(rollout, "attempt", None)
        if last is None or last.sequence_id <= 1:
            return []
        attempts = await self._client.query_attempts(rollout.rollout_id)
        return [_reason_of(attempt) for attempt in attempts if attempt.attempt_id != last.attempt_id]

    async def _restore_forgotten(self, forgotten: Sequence[str]) -> None:
        """Enqueue again the games that the hub has lost: an in-memory hub forgets everything when it restarts."""
        if forgotten:
            logger.warning("the hub has forgotten %d games (did it restart?); enqueueing them again", len(forgotten))
            games = [self._open.pop(rollout_id) for rollout_id in forgotten]
            await self._publish(game.resources for game in games)
            await self._enqueue(games)


def _reason_of(attempt: Attempt) -> str:
    """Why an attempt did not succeed: what its runner said, or what the hub made of its silence."""
    return (attempt.metadata or {}).get("reason") or f"attempt {attempt.status}"


def _kind_of(reason: str) -> str:
    """The name of the error that a reason begins with; the reason itself, in one word, where it names none."""
    return reason.partition(":")[0].replace(" ", "_")


def _read(
    kind: TaskKind, rollout: Rollout, spans: Sequence[Span], retried: Counter[str], resources: PolicyResources
) -> _EndedGame:
    left_out: Counter[str] = Counter()
    failures: Counter[str] = Counter()
    finished = read_rollout(kind, rollout, spans, left_out, failures, resources)
    return _EndedGame(finished, failures, retried, sum(map(kind.call.is_in, spans)), +left_out)


def read_rollout(
    kind: TaskKind,
    rollout: Rollout,
    spans: Sequence[Span],
    left_out: Counter[str],
    failures: Counter[str],
    resources: PolicyResources | None = None,
) -> FinishedRollout | None:
    """What a closed rollout came to, or None; what cannot be used is counted with its reason.

    resources: see ``read_attempt``.
    """
    attempt = getattr(rollout, "attempt", None)
    if rollout.status != "succeeded" or attempt is None:
        reason = _reason_of(attempt) if attempt is not None else f"rollout {rollout.status}"
        logger.warning("rollout %s failed for good: %s", rollout.rollout_id, reason)
        failures[reason] += 1
        left_out[FAILED_GAME] += sum(map(kind.call.is_in, spans))
        return None
    own = [span for span in spans if span.attempt_id == attempt.attempt_id]
    left_out[SUPERSEDED_ATTEMPT] += sum(map(kind.call.is_in, spans)) - sum(map(kind.call.is_in, own))
    try:
        return read_attempt(kind, rollout.rollout_id, attempt.attempt_id, own, resources)
    except (IncompleteRollout, MalformedSpan, WrongLearner) as error:
        logger.warning("rollout left out: %s", error)
        failures[type(error).__name__] += 1
        left_out[UNREADABLE_GAME] += sum(map(kind.call.is_in, own))
        return None
