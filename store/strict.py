"""The base of what algorithm and runners send each other."""

from pydantic import BaseModel, ConfigDict


class Strict(BaseModel):
    """A model without unknown fields, which does not change."""

    model_config = ConfigDict(extra="forbid", frozen=True)
