"""Served policies, as published in the hub: the rows of a run's table."""

from typing import Annotated

from pydantic import AfterValidator, ConfigDict, Field

from store.addresses import problem_with_base_url
from store.strict import Strict


def problem_with_endpoint(url: str) -> str | None:
    """What the address of an OpenAI-compatible server must be; None if it is.

    Runners add a path to it. With another path or a query, a published address could be any request to a server in
    their network.
    """
    return problem_with_base_url(url) or (None if url.endswith("/v1") else "must end in /v1")


def _base_url(url: str) -> str:
    if problem := problem_with_endpoint(url):
        raise ValueError(f"a policy's endpoint {problem}")
    return url


BaseUrl = Annotated[str, AfterValidator(_base_url)]
"""Address of an OpenAI-compatible server, which ends in /v1."""


class ServedPolicy(Strict):
    """A row of a run's table of policies: weights, and the servers that have them.

    name: of the weights, unique in the table.
    player: its name in tasks: ``TRAINED_POLICY`` if it learns, else by default ``name``. Of a player's rows the first
        that matches a seat plays it.
    side, roles: a seat matches if it has this side and one of these roles, in the workload's names; None matches any.
    endpoints: base URLs of vLLM servers, each ending in ``/v1``; all serve the same weights. model: its name there.
    share: weight of a past self in draws for ``PAST_SELVES``; 0 for other policies.
    """

    model_config = ConfigDict(hide_input_in_errors=True)

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")
    player: str = ""
    side: str | None = None
    roles: tuple[str, ...] | None = Field(default=None, min_length=1)
    endpoints: tuple[BaseUrl, ...] = Field(min_length=1)
    model: str = Field(min_length=1)
    share: float = Field(default=0.0, ge=0, allow_inf_nan=False)

    @property
    def seated_as(self) -> str:
        return self.player or self.name

    def plays(self, role: str, side: str) -> bool:
        return self.side in (None, side) and (self.roles is None or role in self.roles)
