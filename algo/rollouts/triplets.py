"""Stored spans -> finished rollouts -> Triplets, in turn order.

A call's span has only the tokens that are new since the actor's last call. Joining the turns of a segment must restore
exactly the policy's token sequence; every join is checked against the runner's length and digest, and a turn with an
incomplete context is left out.
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
    """A rollout with missing spans, not for training. The message names them."""


class WrongLearner(ValueError):
    """A turn sampled by another policy than its seat's, not for training."""


@dataclass(frozen=True)
class Triplet:
    """One model call: agentlightning's ``Triplet`` without a reward, which the workload computes.

    prompt["token_ids"]: the whole prompt as sent. response: ``token_ids`` and ``logprobs``. metadata: the call's other
    fields, with its ``task``, ``actor`` and ``question``.
    """

    prompt: dict[str, list[int]]
    response: dict[str, list[Any]]
    metadata: dict[str, Any]


@dataclass(frozen=True)
class FinishedRollout:
    """One finished rollout, read from the hub.

    outcome: its outcome span. turns: its model calls in the order of (actor, turn), also those without a triplet, since
        they count for rewards.
    left_out: stored turn spans without a triplet, counted by reason.
    calls: start and end of each model call, in seconds by the runner's clock.
    notes: optional records (``NoteSpan``).
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
    """One Triplet per call with a complete prompt. turns: in the order of (actor, turn)."""
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


def read_attempt(
    kind: TaskKind,
    rollout_id: str,
    attempt_id: str,
    spans: Sequence[Span],
    resources: PolicyResources | None = None,
    task_id: str | None = None,
) -> FinishedRollout:
    """Read one attempt's spans as a finished rollout.

    resources: with which it was enqueued; None if it is not for training. task_id: of the enqueued task, where known.
    Raises IncompleteRollout for a missing outcome or call, the outcome or a note of another task, or a call of an actor
    that the outcome lacks; MalformedSpan for a span that cannot be decoded, or a note that does not fit the outcome;
    and WrongLearner for a turn with another ``learner`` than ``resources`` have for its seat.
    """
    where = f"rollout {rollout_id}, attempt {attempt_id}"
    foreign = [span for span in spans if (span.rollout_id, span.attempt_id) != (rollout_id, attempt_id)]
    if foreign:
        raise IncompleteRollout(f"{where}: {len(foreign)} spans belong to another attempt")
    # A runner repeats an upload after a lost response, with the same span ids.
    distinct = list({span.span_id: span for span in spans}.values())
    outcomes = [kind.outcome.decode(span) for span in distinct if kind.outcome.is_in(span)]
    if len(outcomes) != 1:
        raise IncompleteRollout(f"{where}: {len(outcomes)} outcome spans, expected one")
    outcome = outcomes[0]
    if task_id is not None and outcome.task != task_id:
        raise IncompleteRollout(f"{where}: the outcome of another task, {outcome.task!r}, not {task_id!r}")
    of_calls = [span for span in distinct if kind.call.is_in(span)]
    calls_by_turn = {(call.actor, call.turn): call for call in map(kind.call.decode, of_calls)}
    turns = tuple(calls_by_turn[key] for key in sorted(calls_by_turn))
    if len(turns) != len(of_calls):
        raise IncompleteRollout(f"{where}: several spans of the same turn of an actor")
    if len(turns) != outcome.turns:
        raise IncompleteRollout(f"{where}: {len(turns)} of {outcome.turns} turns are stored")
    notes = tuple(kind.note.decode(span) for span in distinct if kind.note is not None and kind.note.is_in(span))
    for what, strangers in (
        ("turns of other tasks", {turn.task for turn in turns} - {outcome.task}),
        ("notes of other tasks", {note.task for note in notes} - {outcome.task}),
        ("turns of actors that the outcome lacks", {turn.actor for turn in turns} - outcome.actor_names),
    ):
        if strangers:
            raise IncompleteRollout(f"{where}: {what}, {sorted(strangers)}")
    for note in notes:
        outcome.check_note(note)
    if resources is not None:
        _check_learners(where, turns, resources)
    outcome.as_data(turns)  # raises MalformedSpan, which would end the run when its transcript is written
    triplets = tuple(triplets_of(turns))
    duplicates = sum(map(kind.call.is_in, spans)) - len(turns)
    left_out = Counter({BROKEN_CONTEXT: len(turns) - len(triplets), DUPLICATE_SPAN: duplicates})
    calls = tuple((span.start_time or 0.0, span.end_time or 0.0) for span in of_calls)
    return FinishedRollout(rollout_id, attempt_id, outcome, turns, triplets, +left_out, calls, notes)


def _check_learners(where: str, turns: Iterable[CallSpan], resources: PolicyResources) -> None:
    for turn in turns:
        try:
            learner = resources.policy_of(TRAINED_POLICY, *turn.card) if turn.policy == TRAINED_POLICY else None
        except ValueError as error:
            raise WrongLearner(f"{where}: {error}") from error
        if turn.learner != learner:
            raise WrongLearner(
                f"{where}: turn {turn.turn} of {turn.actor} was sampled by {turn.learner!r}, but {learner!r} plays the "
                f"seat"
            )
