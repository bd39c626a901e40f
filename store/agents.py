"""What any agent that speaks to an OpenAI-compatible address adds to the contract: its task and its two spans."""

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, field_validator

from store.schema import TokenLimits
from store.token_spans import CallSpan, OutcomeSpan, TaskKind

AGENT = "agent"
"""Kind of an agent's tasks; also who makes a call that names no actor."""

CALL_FACTS: Mapping[str, str] = {
    "invalid": "1.0 when a tool call names no offered tool, or its arguments are no JSON object",
    "cut": "1.0 when the reply ended at its token limit",
    "tool_calls": "tool calls in the reply",
}
"""What runners measure of every reply. One that is absent counts as 0.0."""


class AgentTask(BaseModel):
    """One task for an agent: the ``input`` of a rollout.

    kind: tells agents' tasks from those of other workloads in the same hub.
    task_id: unique within the run. group_id: tasks with the same id have the same ``input``, and were enqueued for the
        same policy version; baselines are taken over them.
    input: what the agent is given, as it wants it.
    sampling_seed: seeds the sampling of the agent's calls; differs between the tasks of a group.
    limits: of one call. ``reply_tokens`` bounds what an agent asks for, and is what it gets when it asks for nothing.
    trainable: actors whose calls may be trained on; None for all. Calls of frozen policies never are.
    max_calls: model calls of one attempt; more are refused, and the agent has to make do with that.
    max_seconds: after which an agent is stopped, which is a failure of its own; None for no limit but the hub's.
    failure_rewards: what an agent earns that fails by its own doing, by dimension, the primary one first.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

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
        """Whether calls of this actor that the trained policy answers may be trained on."""
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

    name: of the actor that called. turn: number of the call within the actor's calls of the attempt, from 0, in the
        order in which they ended. segment: the actor's sequence of tokens that it extends or begins.
    valid: False where a tool call in the reply names no offered tool, or has arguments that are no JSON object.
    reply: text of the reply without thoughts and tool calls. thought: its reasoning, where the server takes it out.
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


class ActorResult(BaseModel):
    """What one actor did in an attempt.

    turns: calls that were answered; segments: sequences that they make up. facts: sums over the calls.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    policy: str
    trainable: bool
    turns: int
    segments: int
    facts: dict[str, float] = Field(default_factory=dict)


class AgentOutcome(OutcomeSpan):
    """The end of one attempt that an agent brought to its end, well or not.

    dimensions: what the agent earned, by name; the first is the primary one.
    failure: what the agent failed with by its own doing; empty for none. traceback: of the exception that it was.
    refused: calls that were answered with an error of the caller's: too long, malformed, too many.
    dropped: how often a parameter of a request was left out, by name, since it would have changed the sampling.
    seconds: how long the agent took.
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
        """How it ended, in a few words."""
        failed = f", failed ({self.failure})" if self.failure else ""
        return f"reward {next(iter(self.dimensions.values())):g} after {self.seconds:.1f} s{failed}"

    @property
    def own_failure(self) -> str:
        return self.failure

    def rewards(self) -> dict[str, float]:
        return self.dimensions


AGENTS = TaskKind(AGENT, AgentCallSpan, AgentOutcome, runner="runners.agents")
