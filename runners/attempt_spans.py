"""Spans of one attempt."""

from collections.abc import Callable

from store.client import AttemptKey
from store.protocol import Span
from store.token_spans import NoteSpan, OutcomeSpan, SpanRecord, to_span


class AttemptSpans:
    """Numbers the spans of one attempt and passes them to ``take``."""

    def __init__(self, take: Callable[[Span], None], key: AttemptKey):
        self._take = take
        self._key = key
        self._count = 0
        self._notes: list[NoteSpan] = []

    def add_turn(self, turn: SpanRecord, started: float, ended: float) -> None:
        """Add a turn or another record, with its start and end; notes are held until the result.

        Raises what ``take`` raises.
        """
        if isinstance(turn, NoteSpan):
            self._notes.append(turn)
        else:
            self._add(turn, started, ended)

    def add_result(self, result: OutcomeSpan, ended: float) -> None:
        """Add the outcome, after all turns. Raises what ``take`` raises."""
        # Zero duration: readers assign the reward to spans that ended before it.
        for record in (result, *self._notes):  # notes last, so that they do not change other spans
            self._add(record, ended, ended)

    def _add(self, record: SpanRecord, started: float, ended: float) -> None:
        self._count += 1
        rollout_id, attempt_id = self._key
        ids = {"rollout_id": rollout_id, "attempt_id": attempt_id, "sequence_id": self._count}
        self._take(to_span(record, **ids, start_time=started, end_time=ended))
