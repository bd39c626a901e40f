"""What a worker asks of what it plays: the wall between the two, known to both."""

from collections.abc import Awaitable, Callable

from agentlightning import AttemptedRollout

from store.token_spans import CallSpan, NoteSpan, OutcomeSpan

TurnSink = Callable[[CallSpan | NoteSpan, float, float], None]
"""Takes a model call, or what is noted beside them, and when it started and ended (seconds since the epoch)."""

Play = Callable[[AttemptedRollout, TurnSink], Awaitable[OutcomeSpan]]
"""Plays one attempt to its end, handing over each model call as soon as it is answered."""
