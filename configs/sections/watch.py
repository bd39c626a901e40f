"""Settings of what is watched while a run learns, so that a policy that collapses is seen before the run has ended."""

from pydantic import Field, model_validator

from configs.section import Section


class BoundConfig(Section):
    """Where a number of the log stops being sound."""

    below: float | None = Field(None, description="unsound below this")
    above: float | None = Field(None, description="unsound above this")
    steps: int = Field(3, ge=1, description="steps in a row that make it more than chance")
    stop: bool = Field(
        False, description="end the run, with its checkpoints as they were before; false: say so in the log"
    )

    @model_validator(mode="after")
    def _bounds_something(self) -> "BoundConfig":
        if self.below is None and self.above is None:
            raise ValueError("set below, above, or both")
        return self

    def holds(self, value: float) -> bool:
        return (self.below is None or value >= self.below) and (self.above is None or value <= self.above)
