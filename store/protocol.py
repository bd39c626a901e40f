"""The types of agentlightning 0.3.0's LightningStore protocol: what hubs answer, and what they are sent.

They have the fields of agentlightning's types of the same names, with the same defaults, and not their import, which
takes seconds and 300 MB.
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

AttributeValue = str | bool | int | float | list[str] | list[bool] | list[int] | list[float]
Attributes = dict[str, AttributeValue]


class RolloutConfig(BaseModel):
    """When an attempt has failed, and how often a rollout is tried. Seconds; None: no limit."""

    timeout_seconds: float | None = None
    unresponsive_seconds: float | None = None
    max_attempts: int = Field(default=1, ge=1)
    retry_condition: list[AttemptStatus] = []


class EnqueueRolloutRequest(BaseModel):
    """A rollout to be queued."""

    input: Any
    mode: RolloutMode | None = None
    resources_id: str | None = None
    config: RolloutConfig | None = None
    metadata: dict[str, Any] | None = None


class Rollout(BaseModel):
    """A task and what has become of it. Times here and below: seconds since the epoch, by the hub's clock."""

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
    """What the hub knows of a runner."""

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
    """What happened in an attempt, in so far as anybody here reads it: agentlightning's spans have more fields.

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
    """Where a model is served, and how it is to be sampled. A ``ProxyLLM`` is read as one, too."""

    resource_type: Literal["llm", "proxy_llm"] = "llm"
    endpoint: str
    model: str
    api_key: str | None = None
    sampling_parameters: dict[str, Any] = {}


class PromptTemplate(BaseModel):
    """A text with gaps."""

    resource_type: Literal["prompt_template"] = "prompt_template"
    template: str
    engine: Literal["jinja", "f-string", "poml"]


NamedResources = dict[str, Annotated[LLM | PromptTemplate, Field(discriminator="resource_type")]]


class ResourcesUpdate(BaseModel):
    """Resources as they are published under an id; ``version`` counts how often they were."""

    resources_id: str
    create_time: float
    update_time: float
    version: int
    resources: NamedResources


Item = TypeVar("Item")


class Page(list[Item], Generic[Item]):
    """What a search has found. total: how many there are without its limit and offset."""

    def __init__(self, items: Iterable[Item], total: int):
        super().__init__(items)
        self.total = total
