"""What a rollout has to tell, as spans of the attempt that plays it."""

from collections.abc import Callable

from agentlightning import Span

from store.client import AttemptKey
from store.full_spans import FullTokenSpans
from store.token_spans import CallSpan, NoteSpan, OutcomeSpan, SpanRecord, to_span


class AttemptSpans:
    """The spans of one attempt: numbered as they come, and handed on.

    take: what each span is given to. started: when it began, in seconds since the epoch.
    full: also write each turn with its whole prompt (``store.full_spans``).
    """

    def __init__(self, take: Callable[[Span], None], key: AttemptKey, started: float, full: bool = False):
        self._take = take
        self._rollout_id, self._attempt_id = key
        self._started = started
        self._full = FullTokenSpans() if full else None
        self._sequence_id = 0
        self._notes: list[NoteSpan] = []

    def add_turn(self, turn: SpanRecord, started: float, ended: float) -> None:
        """Take a turn, or another record, with its start and end; a note is kept back until the result.

        Raises what ``take`` raises.
        """
        if isinstance(turn, NoteSpan):
            self._notes.append(turn)
            return
        span = self._add(turn, started, ended)
        if self._full is not None and isinstance(turn, CallSpan):
            self._take(self._full.of_turn(turn, span, self._next()))

    def add_result(self, result: OutcomeSpan, ended: float) -> None:
        """Take the rollout's end, after all its turns. Raises what ``take`` raises."""
        # At one moment: readers give a reward to what ended before it, and none to what happened within its time.
        span = self._add(result, ended, ended)
        if self._full is not None:
            for actor_span in self._full.of_actors(span, self._sequence_id + 1, self._started, ended):
                self._sequence_id = max(self._sequence_id, actor_span.sequence_id)
                self._take(actor_span)
        for note in self._notes:  # last, so that whatever else is stored of a rollout is the same without them
            self._add(note, ended, ended)

    def _add(self, record: SpanRecord, started: float, ended: float) -> Span:
        span = to_span(
            record,
            rollout_id=self._rollout_id,
            attempt_id=self._attempt_id,
            sequence_id=self._next(),
            start_time=started,
            end_time=ended,
        )
        self._take(span)
        return span

    def _next(self) -> int:
        self._sequence_id += 1
        return self._sequence_id
