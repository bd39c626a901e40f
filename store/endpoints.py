"""Policies as the hub knows them: the rows of a run's table, as resources."""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from agentlightning import LLM, NamedResources, ResourcesUpdate
from pydantic import BaseModel, ConfigDict, Field


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
        return self.player or self.name

    def plays(self, role: str, side: str) -> bool:
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
