"""The agents' part of the contract: a task and two spans, for any agent with an OpenAI-compatible client."""

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, JsonValue, field_validator

from store.players import AGENT
from store.schema import TokenLimits
from store.strict import Strict
from store.token_spans import CallSpan, OutcomeSpan, TaskKind

CALL_FACTS: Mapping[str, str] = {
    "invalid": "1.0 when a tool call names no offered tool, or its arguments are no JSON object",
    "cut": "1.0 when the reply ended at its token limit",
    "tool_calls": "tool calls in the reply",
}
"""Facts of every reply. An absent one counts as 0.0."""


class AgentTask(Strict):
    """One task for an agent: the ``input`` of a rollout.

    kind: distinguishes agents' tasks from those of other workloads in the same hub.
    task_id: unique within the run. group_id: tasks with the same id have the same ``input``, and were enqueued for the
        same policy version; baselines are taken over them.
    input: of the agent, in its own format.
    sampling_seed: seeds the sampling of the agent's calls; differs between the tasks of a group.
    limits: of one call. ``reply_tokens`` is the maximum and the default of a request's ``max_tokens``.
    trainable: actors with calls for training; None for all. Calls of frozen policies never are.
    max_calls: model calls of one attempt; further ones are rejected.
    max_seconds: timeout of an agent, which counts as its own failure; None for no limit but the hub's.
    failure_rewards: rewards of an agent that fails by its own error, by dimension, the primary one first.
    """

    kind: Literal["agent"] = AGENT
    task_id: str = Field(min_length=1)
    group_id: str = Field(min_length=1)
    input: JsonValue
    sampling_seed: int = Field(ge=0)
    limits: TokenLimits
    trainable: frozenset[str] | None = None
    max_calls: int = Field(default=64, ge=1)
    max_seconds: float | None = Field(default=None, gt=0)
    failure_rewards: dict[str, float] = Field(default={"reward": 0.0}, min_length=1)

    def may_train(self, actor: str) -> bool:
        """Whether this actor's calls of the trained policy are for training."""
        return self.trainable is None or actor in self.trainable

    def encode(self) -> dict[str, Any]:
        payload = self.model_dump(mode="json")
        payload["trainable"] = None if self.trainable is None else sorted(self.trainable)
        return payload

    @classmethod
    def decode(cls, rollout_input: Any) -> Self:
        """Read a rollout input back. Raises pydantic's ValidationError, naming every wrong field."""
        return cls.model_validate(rollout_input)


class AgentCallSpan(CallSpan):
    """One model call of an agent, as the gateway answered it.

    name: of the actor. turn: number of the call among the actor's calls of the attempt, from 0, in the order of their
        ends. segment: the actor's sequence of tokens that the call extends or begins.
    valid: False where a tool call in the reply names no offered tool, or has arguments that are no JSON object.
    reply: text of the reply without thoughts and tool calls. thought: its reasoning, where the server separates it.
    facts: measurements of the reply by name (``CALL_FACTS``).
    """

    span_name: ClassVar[str] = "agent.call"
    prefix: ClassVar[str] = "agent."
    json_fields: ClassVar[tuple[str, ...]] = ("facts",)

    task_id: str
    group_id: str
    name: str
    facts: dict[str, float] = Field(default_factory=dict)

    @field_validator("facts")
    @classmethod
    def _are_known(cls, facts: dict[str, float]) -> dict[str, float]:
        for name, value in facts.items():
            if name not in CALL_FACTS or not (math.isfinite(value) and value >= 0):
                raise ValueError(f"fact {name!r} is {value}; known: {', '.join(CALL_FACTS)}, each finite, 0 or more")
        return facts

    @property
    def actor(self) -> str:
        return self.name


class ActorResult(Strict):
    """One actor's calls in an attempt.

    turns: answered calls; segments: their sequences. facts: sums over the calls.
    """

    name: str
    policy: str
    trainable: bool
    turns: int = Field(ge=1)
    segments: int
    facts: dict[str, float] = Field(default_factory=dict)


class AgentOutcome(OutcomeSpan):
    """The outcome of one finished attempt of an agent, successful or not.

    dimensions: rewards by name; the first is the primary one.
    failure: the agent's own error; empty for none. traceback: of its exception.
    refused: calls rejected for an error of the caller: too long, malformed, too many.
    dropped: request parameters that were ignored since they would have changed the sampling: name -> how often.
    seconds: duration of the agent's run.
    """

    prefix: ClassVar[str] = "agent."
    json_fields: ClassVar[tuple[str, ...]] = ("dimensions", "actors", "dropped")

    task_id: str
    group_id: str
    dimensions: dict[str, float] = Field(min_length=1)
    failure: str = ""
    traceback: str = ""
    refused: int = 0
    actors: tuple[ActorResult, ...] = ()
    dropped: dict[str, int] = Field(default_factory=dict)
    seconds: float

    @field_validator("dimensions")
    @classmethod
    def _are_finite(cls, dimensions: dict[str, float]) -> dict[str, float]:
        for name, value in dimensions.items():
            if not name or not math.isfinite(value):
                raise ValueError(f"reward {name!r} must have a name and a finite value, got {value}")
        return dimensions

    @property
    def summary(self) -> str:
        failed = f", failed ({self.failure})" if self.failure else ""
        return f"reward {next(iter(self.dimensions.values())):g} after {self.seconds:.1f} s{failed}"

    @property
    def own_failure(self) -> str:
        return self.failure

    @property
    def actor_names(self) -> frozenset[str]:
        return frozenset(actor.name for actor in self.actors)

    def rewards(self) -> dict[str, float]:
        return self.dimensions


AGENTS = TaskKind(AGENT, AgentCallSpan, AgentOutcome, runner="runners.agents --agent MODULE:NAME")
