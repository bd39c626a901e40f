"""A rollout's calls written once more, whole: as the spans that agentlightning's own adapter reads.

Our turn spans carry only what is new since the actor's last call. ``agentlightning.TracerTraceToTriplet``, and what is
built on it, wants every call with its whole prompt, beneath a span of the agent that made it. These spans are for
such readers, and cost it: prompts are stored anew at every turn, 10 to 30 times the tokens. Nothing of ours reads
them.

``TracerTraceToTriplet()`` needs no option to read them: names, agents and response ids are those that it looks for.
``agent_match`` picks actors by ``CallSpan.agent_name``, for instance ``"trainable"``, ``"^wolf/"`` or ``"/seat-3/"``.
No call of ours is without token ids; where an agent's own tracer writes into the hub besides, and names its calls as
AgentOps does, ``_skip_empty_token_spans=True`` leaves those out. Of rewards the adapter knows one for a call: the first
one of the result span (the outcome of the good side). The last call gets it; with ``reward_match="first_sibling"``, the
last call of one actor. What each earned is in the result span, for those who read more.
"""

import hashlib
import json

from agentlightning import Span

from store.token_spans import CallSpan, context_digest

CALL_SPAN = "openai.chat.completion"
"""Name of a call's span; the adapter's ``llm_call_match`` finds it."""

ACTOR_SPAN = "actor"
"""Name of the span that an actor's calls are beneath."""


class FullTokenSpans:
    """Makes the additional spans of one attempt. Keeps every actor's tokens until then."""

    def __init__(self) -> None:
        self._sequences: dict[tuple[str, int], list[int]] = {}  # (actor, segment) -> everything up to its last turn
        self._actors: dict[str, CallSpan] = {}

    def of_turn(self, turn: CallSpan, span: Span, sequence_id: int) -> Span:
        """The call's own span. span: that of the same turn, whose attempt and times it shares.

        ValueError for a turn that does not continue the actor's turns so far.
        """
        self._actors.setdefault(turn.actor, turn)
        sequence = self._sequences.setdefault((turn.actor, turn.segment), [])
        if len(sequence) != turn.context_tokens or context_digest(sequence) != turn.context_digest:
            raise ValueError(f"{turn.task}, {turn.actor}: turn {turn.turn} does not continue the last one")
        sequence += turn.prompt_ids
        prompt = list(sequence)
        sequence += turn.response_ids
        logprobs = [
            {"token": f"token_id:{token_id}", "logprob": logprob}
            for token_id, logprob in zip(turn.response_ids, turn.logprobs, strict=True)
        ]
        return Span.from_attributes(
            name=CALL_SPAN,
            attributes={
                "gen_ai.request.model": turn.policy,
                "gen_ai.response.id": f"{span.rollout_id}/{span.attempt_id}/{turn.actor}/{turn.turn}",
                "gen_ai.completion.0.role": "assistant",
                "gen_ai.completion.0.content": turn.reply,
                "gen_ai.completion.0.finish_reason": turn.finish_reason,
                "prompt_token_ids": prompt,
                "response_token_ids": list(turn.response_ids),
                "logprobs.content": json.dumps(logprobs),
            },
            rollout_id=span.rollout_id,
            attempt_id=span.attempt_id,
            sequence_id=sequence_id,
            trace_id=span.trace_id,
            span_id=_span_id(span, f"call/{turn.actor}/{turn.turn}"),
            parent_id=_span_id(span, f"actor/{turn.actor}"),
            start_time=span.start_time,
            end_time=span.end_time,
        )

    def of_actors(self, span: Span, sequence_id: int, start_time: float, end_time: float) -> list[Span]:
        """The spans of the actors that made calls, ascending, numbered from ``sequence_id``.

        span: any span of the attempt. Times are the rollout's: the adapter moves a span that lies within
        another's time.
        """
        return [
            Span.from_attributes(
                name=ACTOR_SPAN,
                attributes={"agent.name": self._actors[actor].agent_name},
                rollout_id=span.rollout_id,
                attempt_id=span.attempt_id,
                sequence_id=number,
                trace_id=span.trace_id,
                span_id=_span_id(span, f"actor/{actor}"),
                start_time=start_time,
                end_time=end_time,
            )
            for number, actor in enumerate(sorted(self._actors), start=sequence_id)
        ]


def _span_id(span: Span, name: str) -> str:
    # Follows from names, so that a span that is sent twice is the same span.
    key = f"{span.rollout_id}/{span.attempt_id}/{name}"
    return hashlib.blake2b(key.encode(), digest_size=8).hexdigest()
