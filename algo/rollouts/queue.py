"""The algorithm's side of the hub: publish a policy, enqueue tasks, wait, read back what was played."""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import aiohttp
from agentlightning import Attempt, EnqueueRolloutRequest, Rollout, RolloutConfig, RolloutMode, Span

from algo.rollouts.adoption import Resumption, find_rollouts, may_be_used, version_of
from algo.rollouts.triplets import FinishedRollout, IncompleteRollout, read_attempt
from configs.rollout import RolloutSettings
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

    def failure_metrics(self) -> dict[str, float]:
        """How many games failed and how many attempts had to be repeated, in all and by kind of reason, for the log."""
        metrics = {"games/failed": float(self.failures.total()), "games/retried": float(self.retried.total())}
        for name, reasons in (("failed", self.failures), ("retried", self.retried)):
            for reason, count in reasons.items():
                kind = f"games/{name}/{_kind_of(reason)}"
                metrics[kind] = metrics.get(kind, 0.0) + count
        return metrics


@dataclass(frozen=True)
class _OpenGame:
    """A game that was enqueued and not yet read. mode: ``train`` or ``val``, as agentlightning names them."""

    task: Task
    resources: PolicyResources
    mode: RolloutMode


class RolloutQueue:
    """Plays games through the hub. Survives a hub that restarts with an empty memory.

    Games of several steps may be in flight at once: ``enqueue`` adds some, ``collect`` waits for some.
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
    ) -> int:
        """Publish the policy and enqueue the games; returns how many of them the hub had, in whatever state.

        resumed: an earlier process of this run may have enqueued some of the games; see ``adopt``.
        """
        await self._publish([resources])
        missing, known = await self.adopt(tasks, resources, mode) if resumed else (list(tasks), 0)
        if missing:
            await self._enqueue([_OpenGame(task, resources, mode) for task in missing])
        return known

    async def serve_at(self, endpoints: tuple[str, ...]) -> None:
        """Publish the policies of all open games anew, under the same ids, as served at these endpoints from now on."""
        self._open = {
            rollout_id: replace(game, resources=game.resources.model_copy(update={"endpoints": endpoints}))
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
        finished: dict[str, FinishedRollout] = {}
        failures: Counter[str] = Counter()
        retried: Counter[str] = Counter()
        left_out: Counter[str] = Counter()
        looks: Counter[str] = Counter()
        turns_stored = 0
        ended_since = FinishedGames(self._client)
        statuses: Counter[str] = Counter()
        next_full_look, lonely_since = 0.0, time.monotonic()
        while waiting := [rollout_id for rollout_id, game in self._open.items() if game.task.task_id in wanted]:
            if time.monotonic() >= next_full_look:
                await check_alive()
                next_full_look = time.monotonic() + _FULL_LOOK_SECONDS
                rollouts = await self._client.query_rollouts(rollout_id_in=waiting)
                known = {rollout.rollout_id for rollout in rollouts}
                await self._restore_forgotten([rollout_id for rollout_id in waiting if rollout_id not in known])
                ended = [rollout for rollout in rollouts if rollout.status in _TERMINAL]
                statuses = Counter(rollout.status for rollout in rollouts if rollout.status not in _TERMINAL)
            else:  # in between, only what has ended since
                ended = await ended_since.look(waiting)
            for rollout in ended:
                rollout_id = rollout.rollout_id
                spans = list(await self._client.query_spans(rollout_id))
                if rollout.status == "succeeded" and not spans and looks[rollout_id] < _LOOKS_FOR_SPANS:
                    looks[rollout_id] += 1
                    continue  # the hub may just have restarted empty; then the next look finds the game forgotten
                turns_stored += sum(map(self._kind.call.is_in, spans))
                retried.update(await self._earlier_failures(rollout))
                task_id = self._open.pop(rollout_id).task.task_id
                game = read_rollout(self._kind, rollout, spans, left_out, failures)
                if game is not None:
                    finished[task_id] = game
            still_open = sum(game.task.task_id in wanted for game in self._open.values())
            playing = min(statuses["preparing"] + statuses["running"], still_open)
            on_progress(Progress(len(finished), failures.total(), playing, still_open - playing))
            if playing or not still_open:
                lonely_since = time.monotonic()
            elif time.monotonic() - lonely_since > _LONELY_SECONDS:
                command = f"python -m {self._kind.runner} --n 8 --store {self._client.server_address_root}"
                logger.warning("%d games wait and no runner takes them; start one: %s", still_open, command)
                lonely_since = time.monotonic()
            if still_open:
                await asyncio.sleep(_POLL_SECONDS)
        if not finished:
            reasons = "; ".join(f"{count}x {reason}" for reason, count in failures.most_common(3))
            raise NothingFinished(f"none of {len(tasks)} games can be used: {reasons}. The runners' logs say more")
        ordered = tuple(finished[task.task_id] for task in tasks if task.task_id in finished)
        return PlayedRollouts(ordered, failures, retried, turns_stored, +left_out)

    async def adopt(
        self, tasks: Sequence[Task], resources: PolicyResources, mode: RolloutMode = "train"
    ) -> tuple[list[Task], int]:
        """Take up those of the games that an earlier process of the run enqueued, whether they are played yet or not.

        Returns the tasks of which the hub has no game that can be used, which are to be enqueued, and of how many tasks
        it has any game. One cannot be used that was taken back, failed for good (as games do while no policy is
        served), or was played by weights that are no more (``Resumption``). Of several games of one task (the stock
        hub may have been given a request twice) the one that got furthest counts, the others are taken back.
        """
        found = await find_rollouts(self._client, resources.run_name, {task.task_id for task in tasks})
        missing, republished = [], {resources.resources_id: resources}
        for task in tasks:
            usable = [one for one in found.get(task.task_id, {}).values() if one.status in _BEST_TO_ADOPT]
            candidates = sorted(usable, key=lambda rollout: _BEST_TO_ADOPT.index(rollout.status))
            best = None
            for rollout in candidates:
                if best is None and await self._may_be_used(rollout):
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
        return await may_be_used(self._client, self._kind, rollout, self._resumption.policy_version, weights_change)

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


def read_rollout(
    kind: TaskKind, rollout: Rollout, spans: Sequence[Span], left_out: Counter[str], failures: Counter[str]
) -> FinishedRollout | None:
    """What a closed rollout came to, or None; what cannot be used is counted with its reason."""
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
        return read_attempt(kind, rollout.rollout_id, attempt.attempt_id, own)
    except (IncompleteRollout, MalformedSpan) as error:
        logger.warning("rollout left out: %s", error)
        failures[type(error).__name__] += 1
        left_out[UNREADABLE_GAME] += sum(map(kind.call.is_in, own))
        return None
