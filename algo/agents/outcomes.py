"""What an evaluation of an agent found: its attempts at held-out tasks, what is counted over them, and its file."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, Field

from algo.evaluation.statistics import Estimate, clustered_mean, clustered_share
from algo.machine.whole_files import write_whole

EVALUATIONS_FOLDER = "evaluations"
"""Inside the run's folder. Its files are named so that they sort in the order in which they were made."""


class AttemptRecord(BaseModel):
    """One attempt that came to its end.

    task: which of the held-out tasks, from 0. rewards: by name, the first one the primary. failure: empty for none.
    calls: those that the trained policy answered. invalid: those of them with a tool call that cannot be used.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    task: int = Field(ge=0)
    rewards: dict[str, float] = Field(min_length=1)
    failure: str = ""
    calls: int
    invalid: int

    @property
    def reward(self) -> float:
        """The primary one."""
        return next(iter(self.rewards.values()))


class AgentStatistics(BaseModel):
    """What is counted over an evaluation's attempts; intervals are over tasks. None where there is nothing to count.

    rewards: mean of each reward by name, the primary one first. failed: share of attempts that failed by the agent's
    own doing. invalid_calls: share of the policy's calls with a tool call that cannot be used.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    reward: Estimate | None
    rewards: dict[str, Estimate]
    failed: Estimate | None
    invalid_calls: Estimate | None
    calls_per_attempt: float | None


class AgentEvaluation(BaseModel):
    """One evaluation of a policy.

    label: what the run calls it, such as "step 5". step: after how many. policy_version: of the weights.
    seed, temperature: of the sampling; the seed is that of the resampling behind intervals, too.
    tasks: held-out tasks that were to be done, ``attempts_at_each`` times.
    attempts: those that came to an end. failures: reasons of the others, each with its number.
    retried: reasons of attempts that were repeated.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    label: str
    step: int
    policy_version: int = Field(ge=0)
    seed: int
    temperature: float
    tasks: int
    attempts_at_each: int
    attempts: tuple[AttemptRecord, ...]
    failures: dict[str, int] = Field(default_factory=dict)
    retried: dict[str, int] = Field(default_factory=dict)

    @property
    def not_finished(self) -> int:
        """Attempts that were to be made and cannot be counted."""
        return self.tasks * self.attempts_at_each - len(self.attempts)

    def statistics(self) -> AgentStatistics:
        """Everything that is counted; follows from the attempts alone."""
        attempts, seed = self.attempts, self.seed
        told = [attempt for attempt in attempts if not attempt.failure] or attempts
        names = dict.fromkeys(name for attempt in told for name in attempt.rewards)
        calls = sum(attempt.calls for attempt in attempts)
        invalid, of_calls = _by_task(attempts, lambda each: each.invalid), _by_task(attempts, lambda each: each.calls)
        return AgentStatistics(
            reward=_mean(attempts, lambda each: each.reward, seed),
            rewards={name: found for name in names if (found := self._mean_of(name)) is not None},
            failed=_mean(attempts, lambda each: float(bool(each.failure)), seed),
            invalid_calls=clustered_share(invalid, of_calls, seed) if calls else None,
            calls_per_attempt=calls / len(attempts) if attempts else None,
        )

    def metrics(self) -> dict[str, float]:
        """The statistics as flat numbers for a log, below ``evaluation/``."""
        found = self.statistics()
        estimates = {"reward": found.reward, "failed": found.failed, "invalid_calls": found.invalid_calls}
        estimates |= {f"reward/{name}": value for name, value in found.rewards.items()}
        metrics = {"attempts/finished": float(len(self.attempts)), "attempts/not_finished": float(self.not_finished)}
        for name, estimate in estimates.items():
            if estimate is not None:
                metrics |= {name: estimate.value, f"{name}/low": estimate.low, f"{name}/high": estimate.high}
        return {f"evaluation/{name}": value for name, value in metrics.items()}

    def write(self, path: Path) -> None:
        """Write it as JSON, with its statistics for those who read the file. A file that is there is replaced whole."""
        write_whole(path, _File(evaluation=self, statistics=self.statistics()).model_dump_json(indent=1) + "\n")

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read what ``write`` wrote. Raises ValueError, naming the file and what is wrong with it."""
        try:
            return _File.model_validate_json(path.read_text(encoding="utf-8")).evaluation
        except ValueError as error:
            raise ValueError(f"{path} is no evaluation of an agent that this version can read: {error}") from error

    def _mean_of(self, name: str) -> Estimate | None:
        # A failure earns 0 of what nothing else is said of (``configs.agents.AgentRewardConfig.failure``).
        given = [attempt for attempt in self.attempts if name in attempt.rewards or attempt.failure]
        return _mean(given, lambda each: each.rewards.get(name, 0.0), self.seed)


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    evaluation: AgentEvaluation
    statistics: AgentStatistics


def gain(before: AgentEvaluation, after: AgentEvaluation) -> Estimate | None:
    """By how much the mean reward differs, paired by task: over the tasks that both have, each counting once.

    The interval is over tasks. None where they have none in common.
    """
    earlier, later = _rewards_by_task(before), _rewards_by_task(after)
    both = sorted(earlier.keys() & later.keys())
    if not both:
        return None
    differences = [later[task] - earlier[task] for task in both]
    if len(set(differences)) == 1:  # chance had no part in it, as far as one can see
        return Estimate(value=differences[0], low=differences[0], high=differences[0])
    return clustered_mean(differences, [1] * len(both), after.seed)


def read_evaluations(run_dir: Path) -> list[AgentEvaluation]:
    """The evaluations in a run's folder, in their order. Raises ValueError if one is unreadable."""
    return [AgentEvaluation.read(path) for path in sorted((run_dir / EVALUATIONS_FOLDER).glob("*.json"))]


def _rewards_by_task(evaluation: AgentEvaluation) -> Mapping[int, float]:
    found: dict[int, list[float]] = defaultdict(list)
    for attempt in evaluation.attempts:
        found[attempt.task].append(attempt.reward)
    return {task: sum(rewards) / len(rewards) for task, rewards in found.items()}


def _mean(attempts: Sequence[AttemptRecord], value: Callable[[AttemptRecord], float], seed: int) -> Estimate | None:
    if not attempts:
        return None
    counts = [int(count) for count in _by_task(attempts, lambda each: 1.0)]
    return clustered_mean(_by_task(attempts, value), counts, seed)


def _by_task(attempts: Sequence[AttemptRecord], value: Callable[[AttemptRecord], float]) -> list[float]:
    """Sums over the attempts at each task."""
    sums: dict[int, float] = defaultdict(float)
    for attempt in attempts:
        sums[attempt.task] += value(attempt)
    return list(sums.values())
