"""Metrics of a step: sequences, batch, time."""

import json
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import compress
from pathlib import Path
from statistics import fmean
from types import MappingProxyType

from algo.rollouts.played import PlayedRollouts
from algo.sequences.trajectories import Trajectory
from configs.section import ConfigError


class Stopwatch:
    """Seconds of each named stage, in the order of their first runs."""

    def __init__(self, before: Mapping[str, float] = MappingProxyType({})) -> None:
        """before: seconds of earlier processes."""
        self.seconds: dict[str, float] = defaultdict(float, before)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time a block; blocks of the same name are summed."""
        started = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] += time.monotonic() - started

    def begin_step(self) -> Callable[[], dict[str, float]]:
        """Returns a function that returns the seconds since now, in total and by stage."""
        started, before = time.monotonic(), dict(self.seconds)

        def since() -> dict[str, float]:
            stages = {name: seconds - before.get(name, 0.0) for name, seconds in self.seconds.items()}
            shown = {f"seconds/{name}": seconds for name, seconds in stages.items() if name != "start"}
            return {"seconds/step": time.monotonic() - started, **shown}

        return since


def trajectory_metrics(trajectories: Sequence[Trajectory], branches: Collection[str] = frozenset()) -> dict[str, float]:
    """Metrics of a step's sequences: tokens; entropy by side; rewards and their dimensions by side and by role.

    ``sampling/entropy/<side>`` estimates the policy's entropy at the sampling temperature: the mean of -log p of its
    sampled tokens, in nats.

    Dimensions are unweighted means over actors; an actor counts once, whatever its number of segments. branches: tasks
    whose rewards do not count, since decisions were chosen for them.
    """
    metrics: dict[str, float] = {
        "tokens/sequences": float(len(trajectories)),
        "tokens/total": float(sum(len(trajectory.token_ids) for trajectory in trajectories)),
        "tokens/sampled": float(sum(sum(trajectory.loss_mask) for trajectory in trajectories)),
    }
    surprise: dict[str, list[float]] = defaultdict(list)
    for trajectory in trajectories:
        surprise[trajectory.side] += (-value for value in compress(trajectory.logprobs, trajectory.loss_mask))
    metrics |= {f"sampling/entropy/{side}": fmean(found) for side, found in sorted(surprise.items())}
    seats = {(one.task_id, one.actor): one for one in trajectories if one.task_id not in branches}
    values: dict[str, list[float]] = defaultdict(list)
    for trajectory in seats.values():
        for kind in (trajectory.side, f"role/{trajectory.role}"):
            values[f"reward/{kind}"].append(trajectory.reward)
            for name, value in trajectory.dimensions.items():
                values[f"reward/dim/{name}/{kind}"].append(value)
    return metrics | {name: fmean(found) for name, found in sorted(values.items())}


_SPREAD = "branches/spread/"
_STEPS_OF_SPREADS = 5


def branch_metrics(branched: PlayedRollouts, spreads: Mapping[str, float]) -> dict[str, float]:
    """Metrics of a step's branches: finished, failed, and retried ones, and ``BranchCredit.spreads``."""
    of_failures = {name.replace("rollouts/", "branches/"): value for name, value in branched.failure_metrics().items()}
    of_questions = {f"{_SPREAD}{question}": spread for question, spread in spreads.items()}
    return {"branches/finished": float(len(branched.finished))} | of_failures | of_questions


def recent_spreads(steps: Sequence[Mapping[str, float]]) -> dict[str, list[float]]:
    """Question -> its spreads in the metrics of the last steps (``branch_metrics``): they change with the policy."""
    found: dict[str, list[float]] = defaultdict(list)
    for metrics in steps[-_STEPS_OF_SPREADS:]:
        for name, value in metrics.items():
            if name.startswith(_SPREAD):
                found[name.removeprefix(_SPREAD)].append(value)
    return found


def batch_metrics(trained: Sequence[Trajectory], left_out: Counter[str]) -> dict[str, float]:
    """Metrics of the update's batch (``trained``), and of the turns that were left out."""
    return {
        "turns/in_batch": float(sum(len(trajectory.turn_ends) for trajectory in trained)),
        "turns/left_out": float(left_out.total()),
        **{f"turns/left_out/{reason}": float(count) for reason, count in left_out.items()},
        "tokens/trained_sequences": float(len(trained)),
        "tokens/trained": float(sum(len(trajectory.token_ids) for trajectory in trained)),
        "tokens/sampled_and_trained": float(sum(sum(trajectory.loss_mask) for trajectory in trained)),
    }


def time_metrics(seconds: dict[str, float], calls: Iterable[tuple[float, float]], trainer: float) -> dict[str, float]:
    """Time of a step: ``seconds`` (``Stopwatch.begin_step``), and the share outside vLLM and verl.

    calls: start and end of every model call of the step's rollouts, by the runners' clocks; vLLM's time is their union,
        at most the time of the stage "play".
    trainer: seconds of verl's calls up to the push, which counts for both.
    """
    played = seconds.get("seconds/play", 0.0)
    in_calls = min(_union(calls), played)
    of_both = seconds.get("seconds/push", 0.0)
    learning = sum(seconds.get(f"seconds/{stage}", 0.0) for stage in ("advantages", "update"))
    step = played + learning + of_both
    rest = seconds["seconds/step"] - seconds.get("seconds/evaluate", 0.0) - step
    outside = (played - in_calls) + max(learning - trainer, 0.0) + rest
    whole = step + rest
    return seconds | {"seconds/play_in_vllm": in_calls, "time/overhead_share": outside / whole}


def _union(intervals: Iterable[tuple[float, float]]) -> float:
    covered, reached = 0.0, float("-inf")
    for start, end in sorted(intervals):
        if end > reached:
            covered += end - max(start, reached)
            reached = end
    return covered


def read_steps(run_dir: Path) -> Iterator[tuple[int, dict[str, float]]]:
    """Number and metrics of each step of a run. Raises ConfigError, naming file and line, for an invalid line.

    Skips step 0, the evaluation before the first step.
    """
    path = run_dir / "metrics.jsonl"
    if not path.is_file():
        return
    # A line without an end is one that a killed process left, or that is being written.
    for number, line in enumerate(path.read_bytes().split(b"\n")[:-1], start=1):
        try:
            row = json.loads(line)
            step, metrics = int(row["step"]), dict(row["data"])
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"{path}, line {number}: invalid metrics of a step: {error!r}") from error
        if step > 0:
            yield step, metrics
