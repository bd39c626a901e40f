"""Several policies that learn at one table, as the hub knows them: who plays which seats, and where each is served."""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from agentlightning import LLM, NamedResources, ResourcesUpdate
from pydantic import BaseModel, ConfigDict, Field

_PREFIX = "member_"
_RESOURCE = re.compile(rf"{_PREFIX}([^.]+)(?:\.([1-9]\d*))?")


class TeamMember(BaseModel):
    """One of several policies that learn at one table, where together they are the player ``policy``.

    side, roles: what a seat must be for it to play it; what is not set matches any. The names are the workload's.
    endpoints, model: as in ``store.schema.PolicyResources``, of its own weights.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")
    side: str | None = None
    roles: tuple[str, ...] | None = Field(default=None, min_length=1)
    endpoints: tuple[Annotated[str, Field(min_length=1)], ...] = Field(min_length=1)
    model: str = Field(min_length=1)

    def plays(self, role: str, side: str) -> bool:
        """Whether a seat matches."""
        return self.side in (None, side) and (self.roles is None or role in self.roles)


def learner_of(team: Sequence[TeamMember], role: str, side: str) -> str:
    """Name of the first member that plays such a seat. Raises ValueError where none does."""
    for member in team:
        if member.plays(role, side):
            return member.name
    names = ", ".join(member.name for member in team)
    raise ValueError(f"none of the policies that learn ({names}) plays the role {role!r} of side {side!r}")


def encode_team(team: Sequence[TeamMember], sampling: Mapping[str, Any]) -> NamedResources:
    """As agentlightning resources: an ``LLM`` for each server, ``member_NAME``, ``member_NAME.2``, ….

    sampling: parameters that are those of all members.
    """
    resources: NamedResources = {}
    for order, member in enumerate(team):
        rule = member.model_dump(include={"side", "roles"}, exclude_none=True, mode="json")
        for number, endpoint in enumerate(member.endpoints, start=1):
            resources[_PREFIX + member.name + (f".{number}" if number > 1 else "")] = LLM(
                endpoint=endpoint, model=member.model, sampling_parameters={**sampling, "order": order, **rule}
            )
    return resources


def decode_team(update: ResourcesUpdate, sampling: Mapping[str, Any]) -> tuple[TeamMember, ...]:
    """Read them back, in their order; none where there are none. ValueError for such as cannot be one team's.

    sampling: as in ``encode_team``.
    """
    servers: dict[str, dict[int, LLM]] = {}
    for key, resource in update.resources.items():
        if (found := _RESOURCE.fullmatch(key)) and isinstance(resource, LLM):
            servers.setdefault(found[1], {})[int(found[2] or 1)] = resource
    members: dict[Any, TeamMember] = {}
    for name, by_number in servers.items():
        first, *others = (by_number[number] for number in sorted(by_number))
        rule = dict(first.sampling_parameters)
        order = rule.pop("order", None)
        alike = all((one.model, one.sampling_parameters) == (first.model, first.sampling_parameters) for one in others)
        if (
            not alike
            or not isinstance(order, int)
            or order in members
            or {key: rule.pop(key, None) for key in sampling} != sampling
        ):
            raise ValueError(f"resources {update.resources_id!r} contradict themselves about {name!r} of the team")
        endpoints = tuple(one.endpoint for one in (first, *others))
        members[order] = TeamMember(name=name, endpoints=endpoints, model=first.model, **rule)
    if set(members) != set(range(len(members))):
        raise ValueError(f"resources {update.resources_id!r} lack some of the team: it has {sorted(servers)}")
    return tuple(members[order] for order in range(len(members)))
