"""The summary of a run: totals over its steps, as JSON and as tables."""

import json
import logging
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from algo.machine.atomic_files import write_atomically
from algo.run.metrics import Stopwatch

logger = logging.getLogger(__name__)

_REWARD = re.compile(r"reward/(?P<side>[^/]+)")
_WIN_RATE = re.compile(r"evaluation/win_rate/(?P<side>wolf|good)/vs/(?P<opponent>[^/]+)")
_REWARD_OF_EVALUATION = "evaluation/reward"
_LONGEST_FAILURE = 200
PAGE_NAME = "evaluations.html"
"""File in a run's folder: a page with all its evaluations."""


def rewarded_sides(steps: Iterable[Mapping[str, float]]) -> list[str]:
    """The sides with a mean reward in some step's metrics (``trajectory_metrics``), in reverse order of names."""
    found = {match["side"] for metrics in steps for name in metrics if (match := _REWARD.fullmatch(name))}
    return sorted(found, reverse=True)


def log_step(step: int, steps: int, metrics: dict[str, float], failures: Counter[str]) -> None:
    """Log one line about a finished step. failures: agents' own errors, counted."""
    finished, valid = metrics["rollouts/finished"], metrics.get("turns/valid_share")
    failed = f", {failure_summary(failures, int(finished))}" if failures else ""
    rewards = "".join(f", mean reward {side} {metrics[f'reward/{side}']:+.3f}" for side in rewarded_sides([metrics]))
    logger.info(
        "step %d/%d done: %d rollouts%s, %s valid replies%s, %d tokens in the batch, policy version %d",
        step,
        steps,
        finished,
        failed,
        "-" if valid is None else f"{valid:.0%}",
        rewards,
        metrics["tokens/trained"],
        metrics["policy_version"],
    )


def failure_summary(failures: Counter[str], count: int) -> str:
    """ "failed 96 of 96: KeyError: 'quetsion'": the most common failure, and the number of others."""
    ((commonest, times),) = failures.most_common(1)
    others = failures.total() - times
    return f"failed {failures.total()} of {count}: {commonest[:_LONGEST_FAILURE]}" + (
        f" and {others} others" if others else ""
    )


class RunSummary:
    """Totals over the steps of a run.

    steps: the metrics of each step. before: those of the evaluation before the first. stopwatch: of all stages.
    """

    def __init__(self, run_dir: Path, state: Mapping[str, Any] | None = None):
        """state: from an earlier process of the run."""
        self.run_dir = run_dir
        state = state or {}
        # The state has None for numbers that are not finite.
        self.before, *self.steps = (
            {name: value for name, value in metrics.items() if value is not None}
            for metrics in (state.get("before", {}), *state.get("steps", []))
        )
        self.stopwatch = Stopwatch(state.get("seconds", {}))
        self._groups: list[list[str]] = list(state.get("groups", []))
        self._left_out: Counter[str] = Counter(state.get("left_out", {}))

    def state(self) -> dict[str, Any]:
        return {
            "steps": self.steps,
            "before": self.before,
            "groups": self._groups,
            "left_out": dict(self._left_out),
            "seconds": dict(self.stopwatch.seconds),
        }

    def add_step(self, metrics: dict[str, float], left_out: Counter[str], groups: Sequence[str] = ()) -> None:
        """Add a finished step: its metrics, left-out turns by reason, and the ids of its groups."""
        self.steps.append(metrics)
        self._groups.append(list(groups))
        self._left_out += left_out

    def write(self, policy_version: int) -> None:
        text = json.dumps(self.as_dict(policy_version), indent=2) + "\n"
        write_atomically(self.run_dir / "summary.json", text)

    def as_dict(self, policy_version: int) -> dict[str, Any]:
        """The summary as JSON data: totals, metrics of each step, seconds by stage, paths."""
        rollouts, turns = self._total("rollouts/finished"), self._total("turns/played")
        of_policy = self._total("turns/of_policy")
        played = rollouts + self._total("branches/finished")
        valid = sum(step.get("turns/valid_share", 0.0) * step["turns/of_policy"] for step in self.steps)
        return {
            "steps": len(self.steps),
            "policy_version": policy_version,
            "rollouts": {"finished": int(rollouts), "failed": int(self._total("rollouts/failed"))},
            "turns": {
                "played": int(turns),
                "per_rollout": turns / played if played else None,
                "stored": int(self._total("turns/stored")),
                "in_batch": int(self._total("turns/in_batch")),
                "left_out": dict(self._left_out),
                "valid_share": valid / of_policy if of_policy else None,
            },
            "reward_by_side": {
                side: [step.get(f"reward/{side}") for step in self.steps] for side in rewarded_sides(self.steps)
            },
            "tokens": {
                "trained_sequences": int(self._total("tokens/trained_sequences")),
                "trained": int(self._total("tokens/trained")),
                "sampled_and_trained": int(self._total("tokens/sampled_and_trained")),
            },
            "seconds_by_stage": {name: round(took, 1) for name, took in self.stopwatch.seconds.items()},
            "before": self.before,
            "step_metrics": self.steps,
            "groups_by_step": self._groups,
            "files": {
                **{name: str(self.run_dir / name) for name in ("logs", "transcripts", "checkpoints", "policy")},
                "metrics": str(self.run_dir / "metrics.jsonl"),
                **({"evaluations": str(self.run_dir / PAGE_NAME)} if _evaluations(self.before, self.steps) else {}),
            },
        }

    def _total(self, name: str) -> float:
        return sum(step.get(name, 0.0) for step in self.steps)


def _evaluations(before: Mapping[str, float], steps: Sequence[Mapping[str, float]]) -> list[Mapping[str, float]]:
    """The metrics of steps with an evaluation, in order."""
    return [metrics for metrics in (before, *steps) if any(name.startswith("evaluation/") for name in metrics)]


def evaluation_rows(before: Mapping[str, float], steps: Sequence[Mapping[str, float]]) -> Iterator[tuple[str, str]]:
    """Name and value of each win rate or reward in the first and the last evaluation, with their 95 % intervals.

    before: metrics of the evaluation before the first step. steps: metrics of each step.
    """
    evaluations = _evaluations(before, steps)
    first_and_last = evaluations[:1] + evaluations[1:][-1:]
    for name in dict.fromkeys(name for metrics in first_and_last for name in metrics):
        if found := _WIN_RATE.fullmatch(name):
            title, form = f"win rate, {found['side']} against {found['opponent']}", ".0%"
        elif name == _REWARD_OF_EVALUATION:
            title, form = "mean reward, held-out tasks", ".3f"
        else:
            continue
        shown = [
            f"{metrics[name]:{form}} ({metrics[f'{name}/low']:{form}} to {metrics[f'{name}/high']:{form}})"
            if name in metrics
            else "-"
            for metrics in first_and_last
        ]
        yield title, " -> ".join(shown)


def _reward_rows(summary: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The mean reward of each trained side, in its first and last step."""
    for side, rewards in summary["reward_by_side"].items():
        found = [(step, reward) for step, reward in enumerate(rewards, start=1) if reward is not None]
        ends = dict((found[0], found[-1]))
        yield f"mean reward, {side}", " -> ".join(f"{reward:+.3f} (step {step})" for step, reward in ends.items())


def _agreement_rows(summary: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Differences of vLLM's and the trainer's log-probs of sampled tokens over all steps, by policy."""
    mean, largest = (f"logprobs/rollout_difference_{name}" for name in ("mean", "max"))
    steps = summary["step_metrics"]
    policies = dict.fromkeys(name.removesuffix(mean) for step in steps for name in step if name.endswith(mean))
    for policy in policies:
        means, most = ([step[policy + name] for step in steps if policy + name in step] for name in (mean, largest))
        apart = f"{fmean(means):.1e} nats apart on average, {max(most):.1e} at most"
        yield "log-probs, vLLM's and the trainer's", f"{policy.replace('/', ': ')}{apart}"


def show_summary(summary: dict[str, Any], console: Console) -> None:
    """Print a summary (``RunSummary.as_dict``) as tables."""
    turns, tokens, rollouts = summary["turns"], summary["tokens"], summary["rollouts"]
    left_out = ", ".join(f"{count} {reason}" for reason, count in turns["left_out"].items()) or "none"
    rows = [
        ("updates made", f"{summary['policy_version']} in {summary['steps']} steps"),
        ("rollouts", f"{rollouts['finished']} finished, {rollouts['failed']} failed"),
        ("model calls per rollout", "-" if turns["per_rollout"] is None else f"{turns['per_rollout']:.1f}"),
        ("model turns", f"{turns['played']} played, {turns['stored']} stored, {turns['in_batch']} trained on"),
        ("turns left out", left_out),
        ("valid replies", "-" if turns["valid_share"] is None else f"{turns['valid_share']:.1%}"),
        *_reward_rows(summary),
        *evaluation_rows(summary["before"], summary["step_metrics"]),
        (
            "tokens trained",
            f"{tokens['trained']} in {tokens['trained_sequences']} sequences, {tokens['sampled_and_trained']} of them "
            f"sampled",
        ),
        *_agreement_rows(summary),
    ]
    _show(console, "Run summary", rows)
    _show(console, "Seconds by stage", [(name, f"{took:.1f}") for name, took in summary["seconds_by_stage"].items()])
    _show(console, "Files", summary["files"].items())


def _show(console: Console, title: str, rows: Iterable[tuple[str, str]]) -> None:
    table = Table("", Column(overflow="fold"), title=title, show_header=False, title_justify="left")
    for row in rows:
        table.add_row(*map(Text, row))
    console.print(table)
