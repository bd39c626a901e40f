"""Requests and responses of agentlightning 0.3.0's LightningStore protocol.

The types have the names, fields and defaults of agentlightning's, without its import, which takes seconds and 300 MB.
"""

from collections.abc import Iterable
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import BaseModel, Field

AGL_ANNOTATION = "agentlightning.annotation"
"""Name of the spans that hold rewards."""

REWARD_ATTRIBUTE = "agentlightning.reward"
ROLLOUT_ID, ATTEMPT_ID, SPAN_SEQUENCE_ID = (
    f"agentlightning.{name}" for name in ("rollout_id", "attempt_id", "span_sequence_id")
)

RolloutStatus = Literal["queuing", "preparing", "running", "failed", "succeeded", "cancelled", "requeuing"]
AttemptStatus = Literal["preparing", "running", "failed", "succeeded", "unresponsive", "timeout"]
RolloutMode = Literal["train", "val", "test"]

CLOSED: frozenset[RolloutStatus] = frozenset({"succeeded", "failed", "cancelled"})
"""The states in which a rollout stays."""

LONGEST_REASON = 4_000
"""Characters of the reason of a failed attempt that are kept."""

AttributeValue = str | bool | int | float | list[str] | list[bool] | list[int] | list[float]
Attributes = dict[str, AttributeValue]


class RolloutConfig(BaseModel):
    """Timeouts of an attempt in seconds (None: no limit), and retries of a rollout."""

    timeout_seconds: float | None = None
    unresponsive_seconds: float | None = None
    max_attempts: int = Field(default=1, ge=1)
    retry_condition: list[AttemptStatus] = []


class EnqueueRolloutRequest(BaseModel):
    """A rollout to enqueue."""

    input: Any
    mode: RolloutMode | None = None
    resources_id: str | None = None
    config: RolloutConfig | None = None
    metadata: dict[str, Any] | None = None


class Rollout(BaseModel):
    """A task and its status. Times here and below: seconds since the epoch, by the hub's clock."""

    rollout_id: str
    input: Any
    start_time: float
    end_time: float | None = None
    mode: RolloutMode | None = None
    resources_id: str | None = None
    status: RolloutStatus = "queuing"
    config: RolloutConfig = RolloutConfig()
    metadata: dict[str, Any] | None = None


class Attempt(BaseModel):
    """One attempt at a rollout. sequence_id: its number, from 1."""

    rollout_id: str
    attempt_id: str
    sequence_id: int
    start_time: float
    end_time: float | None = None
    status: AttemptStatus = "preparing"
    worker_id: str | None = None
    last_heartbeat_time: float | None = None
    metadata: dict[str, Any] | None = None


class AttemptedRollout(Rollout):
    """A rollout with its latest attempt."""

    attempt: Attempt


class Worker(BaseModel):
    """State of a runner."""

    worker_id: str
    status: Literal["idle", "busy", "unknown"] = "unknown"
    heartbeat_stats: dict[str, Any] | None = None
    last_heartbeat_time: float | None = None
    last_dequeue_time: float | None = None
    last_busy_time: float | None = None
    last_idle_time: float | None = None
    current_rollout_id: str | None = None
    current_attempt_id: str | None = None


class Span(BaseModel):
    """A record of an attempt, with the fields of agentlightning's spans that are read here.

    sequence_id: orders the spans of an attempt. trace_id, span_id, parent_id: hexadecimal.
    """

    rollout_id: str
    attempt_id: str
    sequence_id: int
    trace_id: str
    span_id: str
    parent_id: str | None = None
    name: str
    attributes: Attributes
    start_time: float | None
    end_time: float | None


class LLM(BaseModel):
    """Endpoint and sampling parameters of a model; also parses a ``ProxyLLM``."""

    resource_type: Literal["llm", "proxy_llm"] = "llm"
    endpoint: str
    model: str
    api_key: str | None = None
    sampling_parameters: dict[str, Any] = {}


class PromptTemplate(BaseModel):
    """A text with placeholders."""

    resource_type: Literal["prompt_template"] = "prompt_template"
    template: str
    engine: Literal["jinja", "f-string", "poml"]


NamedResources = dict[str, Annotated[LLM | PromptTemplate, Field(discriminator="resource_type")]]


class ResourcesUpdate(BaseModel):
    """Resources published under an id; ``version`` counts the publications."""

    resources_id: str
    create_time: float
    update_time: float
    version: int
    resources: NamedResources


Item = TypeVar("Item")


class Page(list[Item], Generic[Item]):
    """Items of a search. total: number of matches without its limit and offset."""

    def __init__(self, items: Iterable[Item], total: int):
        super().__init__(items)
        self.total = total
