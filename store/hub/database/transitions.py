"""Which states are final, and what an attempt's report or span does to it and to its rollout. Pure functions.

In the stock store a late report turns a cancelled or failed game into a succeeded one, and a late span moves a game
that waits for its next attempt back to running, where nobody plays it. Here a closed state stays. Only an attempt that
fell silent (``unresponsive``) may come back, and only while its game still waits for another runner.
"""

from agentlightning import Attempt, Rollout
from agentlightning.types import AttemptStatus, RolloutStatus

CLOSED_ROLLOUT: frozenset[RolloutStatus] = frozenset({"succeeded", "failed", "cancelled"})
WAITING_ROLLOUT: frozenset[RolloutStatus] = frozenset({"queuing", "requeuing"})
CLOSED_ATTEMPT: frozenset[AttemptStatus] = frozenset({"succeeded", "failed", "timeout"})


def may_change(rollout: Rollout, attempt: Attempt, latest: Attempt) -> bool:
    """Whether the attempt's status may still change."""
    if attempt.status == "unresponsive":
        return attempt.attempt_id == latest.attempt_id and rollout.status in WAITING_ROLLOUT
    return attempt.status not in CLOSED_ATTEMPT


def status_after_span(rollout: Rollout, attempt: Attempt, latest: Attempt) -> AttemptStatus:
    """What a span makes of its attempt."""
    is_alive_again = attempt.status in ("preparing", "unresponsive") and may_change(rollout, attempt, latest)
    return "running" if is_alive_again else attempt.status


def follows(rollout: Rollout, attempt: Attempt, latest: Attempt) -> bool:
    """Whether the rollout's status follows the attempt's: it is open, and this is its latest attempt."""
    return attempt.attempt_id == latest.attempt_id and rollout.status not in CLOSED_ROLLOUT
