"""Before training against after it: how much an agent gained on the same held-out tasks, and whether that is enough."""

from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from algo.agents.outcomes import AgentEvaluation, AgentStatistics, gain, read_evaluations
from algo.evaluation.statistics import Estimate
from algo.machine.whole_files import write_whole

COMPARISON_FILE = "evaluation.json"
"""In the run's folder."""

TO_GAIN = 0.15
"""By how much the mean reward has to rise for a run to have taught its agent something."""


@dataclass(frozen=True)
class Compared:
    """The evaluations of one run. name: of the run."""

    name: str
    evaluations: tuple[AgentEvaluation, ...]

    @property
    def before(self) -> AgentEvaluation | None:
        """The evaluation before the first update."""
        return next((found for found in self.evaluations if found.step == 0), None)

    @property
    def after(self) -> AgentEvaluation | None:
        """The last one after training had begun."""
        return next((found for found in self.evaluations[::-1] if found.step > 0), None)

    @property
    def gain(self) -> Estimate | None:
        """By how much the mean reward rose, paired by task; None as long as there is nothing to compare."""
        return None if self.before is None or self.after is None else gain(self.before, self.after)

    def unmet(self) -> list[str]:
        """Which conditions for having learned do not hold, in words; empty if all hold."""
        if self.before is None or self.after is None or self.gain is None:
            return ["there is no evaluation before training, or none after it"]
        before, after = self.before.statistics(), self.after.statistics()
        assert before.reward is not None and after.reward is not None  # there are tasks in common
        found = []
        if self.gain.value < TO_GAIN:
            found.append(f"the mean reward changed by {self.gain.value:+.3f}; +{TO_GAIN:g} is asked for")
        if before.reward.touches(after.reward):
            found.append("the intervals before and after touch, so that chance may explain the difference")
        for name, earlier, later in (
            ("calls of tools that cannot be used", before.invalid_calls, after.invalid_calls),
            ("attempts that failed", before.failed, after.failed),
        ):
            if earlier is None or later is None:
                found.append(f"nothing is recorded of {name}")
            elif later.low > earlier.high:
                found.append(f"{name} rose from {earlier.value:.1%} to {later.value:.1%}")
        return found


class Comparison(BaseModel):
    """What ``evaluation.json`` holds: the first and the last evaluation of a run, and the gain between them.

    unmet: see ``Compared.unmet``.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    before: AgentStatistics | None
    after: AgentStatistics | None
    steps: int
    tasks: int
    gain: Estimate | None
    unmet: tuple[str, ...]


def compared(run_dir: Path) -> Compared:
    """What lies in a run's folder. Raises ValueError if an evaluation cannot be read."""
    return Compared(run_dir.name, tuple(read_evaluations(run_dir)))


def write_comparison(run_dir: Path, found: Compared) -> None:
    """Write ``evaluation.json`` into the run's folder."""
    before, after = found.before, found.after
    last = found.evaluations[-1]
    comparison = Comparison(
        before=None if before is None else before.statistics(),
        after=None if after is None else after.statistics(),
        steps=last.step,
        tasks=last.tasks,
        gain=found.gain,
        unmet=tuple(found.unmet()),
    )
    write_whole(run_dir / COMPARISON_FILE, comparison.model_dump_json(indent=1) + "\n")
