"""State transitions of attempts and rollouts, as pure functions.

In the stock store a late report turns a cancelled or failed rollout into a succeeded one, and a late span moves a
rollout that waits for its next attempt back to running, without a runner. Here a closed state is final. Only an
``unresponsive`` attempt may continue, and only while its rollout waits for another runner.
"""

from agentlightning import Attempt, Rollout
from agentlightning.store.base import is_queuing
from agentlightning.types import AttemptStatus

from store.protocol import CLOSED

CLOSED_ATTEMPT: frozenset[AttemptStatus] = frozenset({"succeeded", "failed", "timeout"})


def may_change(rollout: Rollout, attempt: Attempt, latest: Attempt) -> bool:
    """Whether the attempt's status is not final."""
    if attempt.status == "unresponsive":
        return attempt.attempt_id == latest.attempt_id and is_queuing(rollout)
    return attempt.status not in CLOSED_ATTEMPT


def status_after_span(rollout: Rollout, attempt: Attempt, latest: Attempt) -> AttemptStatus:
    """The attempt's status after a span or a heartbeat."""
    is_alive_again = attempt.status in ("preparing", "unresponsive") and may_change(rollout, attempt, latest)
    return "running" if is_alive_again else attempt.status


def follows(rollout: Rollout, attempt: Attempt, latest: Attempt) -> bool:
    """Whether the rollout's status follows the attempt's: the rollout is open, the attempt its latest."""
    return attempt.attempt_id == latest.attempt_id and rollout.status not in CLOSED
