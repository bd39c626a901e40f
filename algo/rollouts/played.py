"""Results of rollouts, read from the hub's spans and counted."""

import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from algo.rollouts.triplets import FinishedRollout, IncompleteRollout, WrongLearner, read_attempt
from store.protocol import LONGEST_REASON, Attempt, Rollout, Span
from store.schema import PolicyResources
from store.token_spans import MalformedSpan, TaskKind

logger = logging.getLogger(__name__)

FAILED_ROLLOUT = "failed_rollout"
SUPERSEDED_ATTEMPT = "superseded_attempt"
UNREADABLE_ROLLOUT = "unreadable_rollout"


class UnusableRollouts(RuntimeError):
    """Rollouts in the hub would make a resumed run fail again, so it must repeat them (``discard_rollouts``)."""


class NoFinishedRollouts(UnusableRollouts):
    """No rollout of a step is usable; the message has the reasons."""


class AllRolloutsFailed(NoFinishedRollouts):
    """All finished rollouts failed by an error of the agent."""


@dataclass(frozen=True)
class Progress:
    """Rollouts of a step, by state."""

    finished: int
    failed: int
    playing: int
    waiting: int


@dataclass(frozen=True)
class PlayedRollouts:
    """Results of a step's rollouts, or of a single one.

    finished: rollouts with all their spans, in the order of their tasks.
    failures: unusable rollouts by reason: an error's name and text, from the runner.
    retried: failed attempts with a retry, by reason.
    turns_stored: turn spans of all attempts in the hub.
    left_out: turn spans outside ``finished``, by reason.
    """

    finished: tuple[FinishedRollout, ...]
    failures: Counter[str]
    retried: Counter[str]
    turns_stored: int
    left_out: Counter[str]

    @classmethod
    def merge(cls, parts: Sequence["PlayedRollouts"]) -> "PlayedRollouts":
        return cls(
            finished=tuple(rollout for part in parts for rollout in part.finished),
            failures=sum((part.failures for part in parts), Counter()),
            retried=sum((part.retried for part in parts), Counter()),
            turns_stored=sum(part.turns_stored for part in parts),
            left_out=sum((part.left_out for part in parts), Counter()),
        )

    @property
    def calls(self) -> list[tuple[float, float]]:
        """Start and end of every model call of the finished rollouts, in seconds by the runners' clocks."""
        return [call for rollout in self.finished for call in rollout.calls]

    @property
    def own_failures(self) -> Counter[str]:
        """Agents' own errors in finished rollouts (``OutcomeSpan.own_failure``)."""
        return Counter(game.outcome.own_failure for game in self.finished if game.outcome.own_failure)

    def failure_metrics(self) -> dict[str, float]:
        """Metrics: numbers of failed rollouts and retried attempts, in total and by the error's name."""
        metrics: Counter[str] = Counter()
        for name, reasons in (("rollouts/failed", self.failures), ("rollouts/retried", self.retried)):
            metrics[name] = reasons.total()
            for reason, count in reasons.items():
                metrics[f"{name}/{reason.partition(':')[0].replace(' ', '_')}"] += count
        return {name: float(count) for name, count in metrics.items()}


NO_ROLLOUTS = PlayedRollouts.merge([])


def reason_of(attempt: Attempt) -> str:
    """Why an attempt did not succeed: the runner's reason, or the attempt's status."""
    reason = (attempt.metadata or {}).get("reason")  # any client may write it
    return reason[:LONGEST_REASON] if isinstance(reason, str) and reason else f"attempt {attempt.status}"


def read_rollout(
    kind: TaskKind,
    rollout: Rollout,
    spans: Sequence[Span],
    resources: PolicyResources | None = None,
    retried: Iterable[str] = (),
    task_id: str | None = None,
) -> PlayedRollouts:
    """The result of one closed rollout. resources, task_id: see ``read_attempt``. retried: reasons of its earlier
    attempts."""
    attempt = getattr(rollout, "attempt", None)
    own = [span for span in spans if attempt is not None and span.attempt_id == attempt.attempt_id]
    stored, stored_of_attempt = (sum(map(kind.call.is_in, some)) for some in (spans, own))
    left_out: Counter[str] = Counter()
    failures: Counter[str] = Counter()
    finished: tuple[FinishedRollout, ...] = ()
    if rollout.status != "succeeded" or attempt is None:
        reason = reason_of(attempt) if attempt is not None else f"rollout {rollout.status}"
        logger.warning("rollout %s failed: %s", rollout.rollout_id, reason)
        failures[reason] += 1
        left_out[FAILED_ROLLOUT] += stored
    else:
        left_out[SUPERSEDED_ATTEMPT] += stored - stored_of_attempt
        try:
            finished = (read_attempt(kind, rollout.rollout_id, attempt.attempt_id, own, resources, task_id),)
        except (IncompleteRollout, MalformedSpan, WrongLearner) as error:
            logger.warning("rollout left out: %s", error)
            failures[type(error).__name__] += 1
            left_out[UNREADABLE_ROLLOUT] += stored_of_attempt
    return PlayedRollouts(finished, failures, Counter(retried), stored, +left_out)
