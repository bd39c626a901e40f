"""What a worker asks of what it plays: the wall between the two, known to both."""

from collections.abc import Callable
from typing import Protocol

from store.protocol import AttemptedRollout
from store.token_spans import OutcomeSpan, SpanRecord

TurnSink = Callable[[SpanRecord, float, float], None]
"""Takes a model call, or another record of the workload's, and when it started and ended (seconds since the epoch)."""


class Play(Protocol):
    """Plays rollouts; one instance serves a whole process."""

    async def __call__(self, rollout: AttemptedRollout, on_turn: TurnSink) -> OutcomeSpan:
        """Play one attempt to its end, handing over each model call as soon as it is answered."""

    async def close(self) -> None:
        """Close its connections."""
