"""Stored spans -> finished rollouts -> Triplets, in turn order.

A call's span carries only what is new since the actor's last call. Joining the turns of a segment must
give back exactly the token sequence that the policy saw; every join is checked against the length and
the digest that the runner recorded, and a turn whose past is incomplete is left out, never guessed.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from store.protocol import Span
from store.schema import TRAINED_POLICY, PolicyResources
from store.token_spans import CallSpan, NoteSpan, OutcomeSpan, TaskKind, context_digest

BROKEN_CONTEXT = "broken_context"
DUPLICATE_SPAN = "duplicate_span"


class IncompleteRollout(ValueError):
    """A rollout whose spans are not all there; it must not be trained on. The message says what is missing."""


class WrongLearner(ValueError):
    """A turn that another policy sampled than the one whose seat it is; it must not be trained on."""


@dataclass(frozen=True)
class Triplet:
    """One model call: agentlightning's ``Triplet`` without its reward, since the workload weighs what actors earn.

    prompt["token_ids"]: the whole prompt as sent. response: ``token_ids`` and ``logprobs``. metadata: the call's other
    fields, with its ``task``, ``actor`` and ``question``.
    """

    prompt: dict[str, list[int]]
    response: dict[str, list[Any]]
    metadata: dict[str, Any]


@dataclass(frozen=True)
class FinishedRollout:
    """One finished rollout as read back from the store.

    outcome: how it ended. turns: its model calls in the order of (actor, turn), also those that gave no triplet: what
        an actor earns does not depend on which of its calls can be trained on.
    left_out: stored turn spans that gave no triplet, counted by reason.
    calls: start and end of each model call, in seconds by the runner's clock.
    notes: what was noted beside calls and end, where the task wanted it.
    """

    rollout_id: str
    attempt_id: str
    outcome: OutcomeSpan
    turns: tuple[CallSpan, ...]
    triplets: tuple[Triplet, ...]
    left_out: Counter[str]
    calls: tuple[tuple[float, float], ...] = ()
    notes: tuple[NoteSpan, ...] = ()


def triplets_of(turns: Iterable[CallSpan]) -> Iterator[Triplet]:
    """One Triplet per call whose whole prompt can be rebuilt. turns: in the order of (actor, turn)."""
    sequences: dict[tuple[str, int], list[int]] = {}  # (actor, segment) -> everything up to its last turn
    for turn in turns:
        sequence = sequences.setdefault((turn.actor, turn.segment), [])
        if len(sequence) != turn.context_tokens or context_digest(sequence) != turn.context_digest:
            continue
        sequence += turn.prompt_ids
        identity = {"task": turn.task, "actor": turn.actor, "question": turn.question}
        yield Triplet(
            prompt={"token_ids": list(sequence)},
            response={"token_ids": list(turn.response_ids), "logprobs": list(turn.logprobs)},
            metadata=turn.model_dump(exclude={"prompt_ids", "response_ids", "logprobs"}) | identity,
        )
        sequence += turn.response_ids


def read_calls(kind: TaskKind, spans: Sequence[Span]) -> list[CallSpan]:
    """The model calls among the spans, each once, in the order of (actor, turn). Raises MalformedSpan."""
    calls = {(call.actor, call.turn): call for call in map(kind.call.decode, filter(kind.call.is_in, spans))}
    return [calls[key] for key in sorted(calls)]


def read_attempt(
    kind: TaskKind,
    rollout_id: str,
    attempt_id: str,
    spans: Sequence[Span],
    resources: PolicyResources | None = None,
) -> FinishedRollout:
    """Read one attempt's spans as a finished rollout.

    resources: that it was enqueued with; None where nobody learns from it.
    Raises IncompleteRollout unless its outcome and every call that the outcome counts are there,
    MalformedSpan for a span that cannot be read, and WrongLearner for a turn whose ``learner`` is not the one that
    ``resources`` have for its seat.
    """
    where = f"rollout {rollout_id}, attempt {attempt_id}"
    foreign = [span for span in spans if (span.rollout_id, span.attempt_id) != (rollout_id, attempt_id)]
    if foreign:
        raise IncompleteRollout(f"{where}: {len(foreign)} spans belong to another attempt")
    # A runner that did not hear the hub's answer sends a span again, under the same id.
    distinct = list({span.span_id: span for span in spans}.values())
    outcomes = [kind.outcome.decode(span) for span in distinct if kind.outcome.is_in(span)]
    if len(outcomes) != 1:
        raise IncompleteRollout(f"{where}: {len(outcomes)} result spans, expected one")
    outcome = outcomes[0]
    of_calls = [span for span in distinct if kind.call.is_in(span)]
    turns = tuple(read_calls(kind, of_calls))
    if len(turns) != len(of_calls):
        raise IncompleteRollout(f"{where}: different spans claim to be the same turn of an actor")
    if len(turns) != outcome.turns:
        raise IncompleteRollout(f"{where}: {len(turns)} of {outcome.turns} turns are stored")
    strangers = {turn.task for turn in turns} - {outcome.task}
    if strangers:
        raise IncompleteRollout(f"{where}: turns of other tasks, {sorted(strangers)}")
    if resources is not None:
        _check_learners(where, turns, resources)
    triplets = tuple(triplets_of(turns))
    duplicates = sum(map(kind.call.is_in, spans)) - len(turns)
    left_out = Counter({BROKEN_CONTEXT: len(turns) - len(triplets), DUPLICATE_SPAN: duplicates})
    calls = tuple((span.start_time or 0.0, span.end_time or 0.0) for span in of_calls)
    notes = tuple(kind.note.decode(span) for span in distinct if kind.note is not None and kind.note.is_in(span))
    return FinishedRollout(rollout_id, attempt_id, outcome, turns, triplets, +left_out, calls, notes)


def _check_learners(where: str, turns: Iterable[CallSpan], resources: PolicyResources) -> None:
    for turn in turns:
        try:
            learner = resources.policy_of(TRAINED_POLICY, *turn.card) if turn.policy == TRAINED_POLICY else None
        except ValueError as error:
            raise WrongLearner(f"{where}: {error}") from error
        if turn.learner != learner:
            raise WrongLearner(
                f"{where}: turn {turn.turn} of {turn.actor} says that {turn.learner!r} sampled it, and {learner!r} "
                f"plays there"
            )
