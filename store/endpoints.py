"""Policies as the hub knows them: the rows of a run's table."""

from typing import Annotated

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
