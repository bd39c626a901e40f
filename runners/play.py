"""What a worker asks of a game: the wall between the two, known to both."""

from collections.abc import Awaitable, Callable

from agentlightning import AttemptedRollout

from store.spans import ResultSpan, TurnSpan

TurnSink = Callable[[TurnSpan, float, float], None]
"""Takes a model turn, and when it started and ended (seconds since the epoch)."""

Play = Callable[[AttemptedRollout, TurnSink], Awaitable[ResultSpan]]
"""Plays one attempt to its end, handing over each model turn as soon as its decision is made."""
