"""Stored spans -> finished games -> agentlightning Triplets, in turn order.

A turn span carries only what is new since the seat's last turn. Joining the turns of a segment must
give back exactly the token sequence that the policy saw; every join is checked against the length and
the digest that the runner recorded, and a turn whose past is incomplete is left out, never guessed.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agentlightning import Span, TraceAdapter, Triplet

from store.spans import NEUTRAL_FACTS, MalformedSpan, ResultSpan, TurnSpan, context_digest, is_result, is_turn

BROKEN_CONTEXT = "broken_context"
DUPLICATE_SPAN = "duplicate_span"


class IncompleteGame(ValueError):
    """A game whose spans are not all there; it must not be trained on. The message says what is missing."""


@dataclass(frozen=True)
class FinishedGame:
    """One finished game as read back from the store.

    triplets: model turns in the order of (seat, turn): ``prompt["token_ids"]`` is the whole prompt as sent,
        ``response`` holds ``token_ids`` and ``logprobs``, ``metadata`` the span's other fields.
    facts: (seat, turn) -> all facts (``store.spans.TURN_FACTS``) of every turn, also of one that gave no triplet: what
        a seat earns does not depend on which of its turns can be trained on.
    left_out: stored turn spans that gave no triplet, counted by reason.
    calls: start and end of each model call, in seconds by the runner's clock.
    """

    rollout_id: str
    attempt_id: str
    result: ResultSpan
    triplets: tuple[Triplet, ...]
    facts: Mapping[tuple[int, int], Mapping[str, float]]
    left_out: Counter[str]
    calls: tuple[tuple[float, float], ...] = ()


class TurnTriplets(TraceAdapter[list[Triplet]]):
    """Spans of one attempt -> one Triplet per model turn whose whole prompt can be rebuilt.

    ``reward`` stays None: rewards belong to seats and games, and are weighed in ``algo.werewolf.rewards``.
    Raises MalformedSpan for a turn span that cannot be read.
    """

    def adapt(self, source: Sequence[Span], /) -> list[Triplet]:
        """Convert the spans; spans that are not model turns are ignored."""
        triplets: list[Triplet] = []
        sequences: dict[tuple[int, int], list[int]] = {}  # (seat, segment) -> everything up to its last turn
        for turn in read_turns(source):
            sequence = sequences.setdefault((turn.seat, turn.segment), [])
            if len(sequence) != turn.context_tokens or context_digest(sequence) != turn.context_digest:
                continue
            sequence += turn.prompt_ids
            triplets.append(
                Triplet(
                    prompt={"token_ids": list(sequence)},
                    response={"token_ids": list(turn.response_ids), "logprobs": list(turn.logprobs)},
                    metadata=turn.model_dump(exclude={"prompt_ids", "response_ids", "logprobs"}),
                )
            )
            sequence += turn.response_ids
        return triplets


def read_turns(spans: Sequence[Span]) -> list[TurnSpan]:
    """The turns among the spans, each once, in the order of (seat, turn). Raises MalformedSpan."""
    turns = {(turn.seat, turn.turn): turn for turn in map(TurnSpan.decode, filter(is_turn, spans))}
    return [turns[key] for key in sorted(turns)]


def read_game(rollout_id: str, attempt_id: str, spans: Sequence[Span]) -> FinishedGame:
    """Read one attempt's spans as a finished game.

    Raises IncompleteGame unless its result and every turn that the result counts are there, and
    MalformedSpan for a span that cannot be read.
    """
    where = f"rollout {rollout_id}, attempt {attempt_id}"
    foreign = [span for span in spans if (span.rollout_id, span.attempt_id) != (rollout_id, attempt_id)]
    if foreign:
        raise IncompleteGame(f"{where}: {len(foreign)} spans belong to another attempt")
    # A runner that did not hear the hub's answer sends a span again, under the same id.
    distinct = list({span.span_id: span for span in spans}.values())
    results = [ResultSpan.decode(span) for span in distinct if is_result(span)]
    if len(results) != 1:
        raise IncompleteGame(f"{where}: {len(results)} result spans, expected one")
    result = results[0]
    turns = read_turns(distinct)
    if len(turns) != sum(map(is_turn, distinct)):
        raise IncompleteGame(f"{where}: different spans claim to be the same turn of a seat")
    if len(turns) != result.turns:
        raise IncompleteGame(f"{where}: {len(turns)} of {result.turns} turns are stored")
    strangers = {turn.game_id for turn in turns} - {result.game_id}
    if strangers:
        raise IncompleteGame(f"{where}: turns of other games, {sorted(strangers)}")
    triplets = tuple(TurnTriplets().adapt(distinct))
    duplicates = sum(map(is_turn, spans)) - len(turns)
    left_out = Counter({BROKEN_CONTEXT: len(turns) - len(triplets), DUPLICATE_SPAN: duplicates})
    facts = {(turn.seat, turn.turn): {**NEUTRAL_FACTS, **turn.facts} for turn in turns}
    calls = tuple((span.start_time or 0.0, span.end_time or 0.0) for span in distinct if is_turn(span))
    return FinishedGame(rollout_id, attempt_id, result, triplets, facts, +left_out, calls)


__all__ = [
    "BROKEN_CONTEXT",
    "DUPLICATE_SPAN",
    "FinishedGame",
    "IncompleteGame",
    "MalformedSpan",
    "TurnTriplets",
    "read_game",
    "read_turns",
]
