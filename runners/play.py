"""The interface between the worker and a workload."""

from collections.abc import Callable
from typing import Protocol

from store.protocol import AttemptedRollout
from store.token_spans import OutcomeSpan, SpanRecord

TurnSink = Callable[[SpanRecord, float, float], None]
"""Receives a model call or another record of the workload, with its start and end (seconds since the epoch)."""


class Play(Protocol):
    """Plays rollouts; one instance per process."""

    async def __call__(self, rollout: AttemptedRollout, on_turn: TurnSink) -> OutcomeSpan:
        """Play one attempt to its end; passes each model call to ``on_turn`` at once."""

    async def close(self) -> None:
        """Close its connections."""
