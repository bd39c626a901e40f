"""Models as the hub knows them: policies that play token by token, and models behind a chat API."""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from agentlightning import LLM, NamedResources, ResourcesUpdate
from pydantic import BaseModel, ConfigDict, Field, field_validator

TRAINED_POLICY = "policy"
"""Name of the trained policy: the resource that serves it, and a player's name where players are seated."""


class ChatEndpoint(BaseModel):
    """A model that is not trained: an opponent, or the judge. Called through AgentScope's own chat models.

    provider: "openai" for any OpenAI-compatible endpoint, "dashscope" for Alibaba Cloud's.
    endpoint: base URL; empty for the provider's own. Without user, password or query, which may hold secrets.
    api_key_env: name of the environment variable that holds the key on the runner's machine, since keys never
        enter the store; None for an endpoint that needs none.
    timeout_seconds: of one try. tries: before the endpoint counts as unreachable, with back-off and jitter between.
    max_concurrent: calls under way at once, per runner process. requests_per_minute: per runner process; None: any.
    history_chars: a player is told the game so far in at most about this many characters; beyond it the older part
        becomes a recap.
    """

    # What was refused may be a key that was put in the wrong place.
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    provider: Literal["openai", "dashscope"] = "openai"
    endpoint: str = ""
    model: str = Field(min_length=1)
    api_key_env: str | None = Field(default=None, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    temperature: float = Field(default=1.0, ge=0)
    max_tokens: int = Field(default=512, gt=0)
    timeout_seconds: float = Field(default=30.0, gt=0)
    tries: int = Field(default=3, ge=1)
    max_concurrent: int = Field(default=8, ge=1)
    requests_per_minute: float | None = Field(default=None, gt=0)
    history_chars: int = Field(default=12_000, gt=0)

    @field_validator("endpoint")
    @classmethod
    def _holds_no_secret(cls, endpoint: str) -> str:
        parts = urlsplit(endpoint)
        if endpoint and (parts.scheme not in ("http", "https") or not parts.hostname):
            raise ValueError("must be a URL that begins with http:// or https://, or empty for the provider's own")
        if parts.username or parts.password or parts.query:
            raise ValueError("must have no user, password or query: keys never enter the store, see api_key_env")
        return endpoint

    def encode(self) -> LLM:
        """As an agentlightning resource."""
        return LLM(
            endpoint=self.endpoint,
            model=self.model,
            sampling_parameters=self.model_dump(exclude={"endpoint", "model"}, exclude_none=True),
        )

    @classmethod
    def decode(cls, resource: LLM) -> Self:
        """Read it back. Raises pydantic's ValidationError, naming every wrong field."""
        return cls(endpoint=resource.endpoint, model=resource.model, **resource.sampling_parameters)


class ServedPolicy(BaseModel):
    """A row of a run's table of policies: weights that play token by token, and where they are served.

    name: of the weights, unlike all others.
    player: the name by which tasks seat it: ``TRAINED_POLICY`` if it learns, else by default its own. Several rows
        may be one player; of those that match a seat the first plays it.
    side, roles: a seat matches if it has this side and one of these roles; None matches any. The workload's names.
    endpoints: base URLs of vLLM servers, each ending in ``/v1``; all serve the same weights. model: its name there.
    share: how often it is met where a seat is for a past self, any positive weight; 0: it is not one.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")
    player: str = ""
    side: str | None = None
    roles: tuple[str, ...] | None = Field(default=None, min_length=1)
    endpoints: tuple[Annotated[str, Field(min_length=1)], ...] = Field(min_length=1)
    model: str = Field(min_length=1)
    share: float = Field(default=0.0, ge=0, allow_inf_nan=False)

    @property
    def seated_as(self) -> str:
        """The name by which tasks seat it."""
        return self.player or self.name

    def plays(self, role: str, side: str) -> bool:
        """Whether a seat matches."""
        return self.side in (None, side) and (self.roles is None or role in self.roles)


_RESOURCE = re.compile(r"served_([^.]+)(?:\.([1-9]\d*))?")


def encode_policies(policies: Sequence[ServedPolicy], sampling: Mapping[str, Any]) -> NamedResources:
    """As agentlightning resources: an ``LLM`` for each server, ``served_NAME``, ``served_NAME.2``, ….

    sampling: parameters that all policies have in common.
    """
    resources: NamedResources = {}
    for order, policy in enumerate(policies):
        row = policy.model_dump(include={"player", "side", "roles", "share"}, exclude_defaults=True, mode="json")
        for number, endpoint in enumerate(policy.endpoints, start=1):
            resources[f"served_{policy.name}" + (f".{number}" if number > 1 else "")] = LLM(
                endpoint=endpoint, model=policy.model, sampling_parameters={**sampling, "order": order, **row}
            )
    return resources


def decode_policies(update: ResourcesUpdate, sampling: Mapping[str, Any]) -> tuple[ServedPolicy, ...]:
    """Read them back, in their order. Raises ValueError where servers of one policy differ, or policies are missing.

    sampling: as in ``encode_policies``.
    """
    servers: dict[str, dict[int, LLM]] = {}
    for key, resource in update.resources.items():
        if (found := _RESOURCE.fullmatch(key)) and isinstance(resource, LLM):
            servers.setdefault(found[1], {})[int(found[2] or 1)] = resource
    policies: dict[Any, ServedPolicy] = {}
    for name, by_number in servers.items():
        first, *others = (by_number[number] for number in sorted(by_number))
        row = dict(first.sampling_parameters)
        order = row.pop("order", None)
        alike = all((one.model, one.sampling_parameters) == (first.model, first.sampling_parameters) for one in others)
        same_sampling = {key: row.pop(key, None) for key in sampling} == sampling
        if not alike or not same_sampling or not isinstance(order, int) or order in policies:
            raise ValueError(f"resources {update.resources_id!r} contradict themselves about the policy {name!r}")
        endpoints = tuple(one.endpoint for one in (first, *others))
        policies[order] = ServedPolicy(name=name, endpoints=endpoints, model=first.model, **row)
    if set(policies) != set(range(len(policies))):
        raise ValueError(f"resources {update.resources_id!r} lack some of the policies: they have {sorted(servers)}")
    return tuple(policies[order] for order in range(len(policies)))
