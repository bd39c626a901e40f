"""What a rollout has to tell, as spans of the attempt that plays it."""

from collections.abc import Callable

from store.client import AttemptKey
from store.protocol import Span
from store.token_spans import NoteSpan, OutcomeSpan, SpanRecord, to_span


class AttemptSpans:
    """The spans of one attempt: numbered as they come, and handed on.

    take: what each span is given to.
    """

    def __init__(self, take: Callable[[Span], None], key: AttemptKey):
        self._take = take
        self._key = key
        self._count = 0
        self._notes: list[NoteSpan] = []

    def add_turn(self, turn: SpanRecord, started: float, ended: float) -> None:
        """Take a turn, or another record, with its start and end; a note is kept back until the result.

        Raises what ``take`` raises.
        """
        if isinstance(turn, NoteSpan):
            self._notes.append(turn)
        else:
            self._add(turn, started, ended)

    def add_result(self, result: OutcomeSpan, ended: float) -> None:
        """Take the rollout's end, after all its turns. Raises what ``take`` raises."""
        # At one moment: readers give a reward to what ended before it, and none to what happened within its time.
        for record in (result, *self._notes):  # notes last, so that all else of a rollout is the same without them
            self._add(record, ended, ended)

    def _add(self, record: SpanRecord, started: float, ended: float) -> None:
        self._count += 1
        rollout_id, attempt_id = self._key
        ids = {"rollout_id": rollout_id, "attempt_id": attempt_id, "sequence_id": self._count}
        self._take(to_span(record, **ids, start_time=started, end_time=ended))
