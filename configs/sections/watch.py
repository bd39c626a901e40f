"""Bounds of metrics, by which a collapsing policy is noticed during the run."""

from pydantic import Field, model_validator

from configs.section import Section


class BoundConfig(Section):
    """Bounds of one metric."""

    below: float | None = Field(None, description="lower bound")
    above: float | None = Field(None, description="upper bound")
    steps: int = Field(3, ge=1, description="consecutive steps outside the bounds before the run reacts")
    stop: bool = Field(False, description="stop the run without writing another checkpoint; false: log a warning")

    @model_validator(mode="after")
    def _bounds_something(self) -> "BoundConfig":
        if self.below is None and self.above is None:
            raise ValueError("set below, above, or both")
        return self

    def holds(self, value: float) -> bool:
        return (self.below is None or value >= self.below) and (self.above is None or value <= self.above)
