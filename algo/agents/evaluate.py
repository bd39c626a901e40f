"""Evaluates an agent on held-out tasks with the served policy."""

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from algo.agents.metrics import check_attempts, invalid_calls, of_policy, rewards_by_name
from algo.agents.tasks import held_out_tasks
from algo.evaluation.page import Page, Section, Table, share_text, signed_text, value_text
from algo.evaluation.record import PAGE_FILE, Evaluation, Header, Record, Row, play_and_record
from algo.evaluation.statistics import Estimate, flat_metrics, mean_by_cluster, paired_difference
from algo.loop.workload import EvaluatedPolicy
from algo.rollouts.triplets import FinishedRollout
from algo.run.records import write_transcripts_to
from configs.agents import AgentConfig
from store.agents import AgentOutcome


class AttemptRow(Row):
    """One finished attempt. cluster: index of the held-out task.

    rewards: by name, the first one the primary. failure: empty for none. calls: of the trained policy.
    invalid: those with an invalid tool call.
    """

    rewards: dict[str, float] = Field(min_length=1)
    failure: str = ""
    calls: int
    invalid: int


AgentEvaluation = Evaluation[AttemptRow]
_OF_NAME = "reward/"


def primary_rewards(evaluation: AgentEvaluation) -> list[float]:
    """The primary reward of every row: the agent's first."""
    return [next(iter(given.values())) for given in _rewards_by_name(evaluation)]


async def evaluate(
    config: AgentConfig, inputs: Sequence[Any], policy: EvaluatedPolicy, step: int, resumed: bool
) -> dict[str, float]:
    """Play the held-out tasks (section ``evaluation``), and append rows to the run's ``evaluations.jsonl``.

    inputs: held out, at least ``evaluation.tasks``. step, resumed: see ``algo.loop.workload.Workload.evaluate``.
    Raises the errors of ``play_and_record``, and AllRolloutsFailed where all failed (``check_attempts``).
    """
    settings, resources = config.evaluation, policy.resources()
    conditions = {
        "seed": settings.seed,
        "temperature": settings.temperature or config.rollout.temperature,
        "tasks": settings.tasks,
        "attempts": settings.attempts,
        "inputs": _digest_of(inputs[: settings.tasks]),
    }
    digest = _digest_of(conditions)
    tasks = held_out_tasks(config, inputs, f"{config.run.name}-evaluation-step{step:06d}-{digest}")
    header = Header(
        label=f"step {step}",
        player=f"policy@{resources.version}",
        step=step,
        policy_version=resources.version,
        conditions=conditions,
        digest=digest,
        seed=settings.seed,
        planned={"held-out tasks": len(tasks)},
    )
    finished: list[AgentOutcome] = []

    def to_row(number: int, rollout: FinishedRollout) -> AttemptRow:
        outcome: AgentOutcome = rollout.outcome
        finished.append(outcome)
        if number < config.log.transcripts_per_step:
            write_transcripts_to(config.run_dir / "transcripts" / f"evaluation-{step:04d}", [rollout])
        actors = of_policy(outcome)
        return AttemptRow(
            number=number,
            task_id=outcome.task_id,
            cluster=number // settings.attempts,
            rewards=outcome.dimensions,
            failure=outcome.failure,
            calls=sum(actor.turns for actor in actors),
            invalid=int(sum(map(invalid_calls, actors))),
        )

    record = Record(config.run_dir, AttemptRow)
    evaluation = await play_and_record(
        record,
        header,
        tasks,
        policy.queue,
        resources,
        policy.refresh_endpoints,
        to_row,
        resumed=resumed,
        figures=lambda played: {name: found and found.model_dump() for name, found in figures_of(played).items()},
    )
    if not any(row.calls and not row.failure for row in evaluation.rows):
        record.forget(header)
        check_attempts(finished)
    write_page(config.run_dir)
    counts = {"finished": float(len(evaluation.rows)), "not_finished": float(evaluation.not_finished)}
    return flat_metrics(figures_of(evaluation) | {f"attempts/{name}": count for name, count in counts.items()})


def figures_of(evaluation: AgentEvaluation) -> dict[str, Estimate | None]:
    """Figures of an evaluation, with intervals over tasks; None without data.

    ``reward`` (primary) and ``reward/NAME`` of each: means. ``failed``: share of attempts that failed in the agent.
    ``calls``: of the policy in an attempt. ``invalid_calls``: share of calls with an invalid tool call.
    """
    rows = evaluation.rows

    def mean(
        among: Sequence[AttemptRow], values: list[float], counts: Sequence[float] = (), shares: bool = True
    ) -> Estimate | None:
        counts = counts or [1.0] * len(among)
        clusters, seed = [row.cluster for row in among], evaluation.header.seed
        return mean_by_cluster(clusters, values, seed, counts, shares=shares) if any(counts) else None

    calls = [row.calls for row in rows]
    figures = {
        "reward": mean(rows, primary_rewards(evaluation)),
        "failed": mean(rows, [bool(row.failure) for row in rows]),
        "calls": mean(rows, calls, shares=False),
        "invalid_calls": mean(rows, [row.invalid for row in rows], calls),
    }
    named = _rewards_by_name(evaluation)
    for name in dict.fromkeys(name for given in named for name in given):
        among = [(row, given[name]) for row, given in zip(rows, named, strict=True) if name in given]
        figures[f"{_OF_NAME}{name}"] = mean([row for row, _ in among], [reward for _, reward in among])
    return figures


def _rewards_by_name(evaluation: AgentEvaluation) -> list[Mapping[str, float]]:
    return rewards_by_name((row.rewards, row.failure) for row in evaluation.rows)


def gain(before: AgentEvaluation, after: AgentEvaluation) -> Estimate | None:
    """Difference of the mean reward, paired by task: over shared tasks, each counting once.

    None if the conditions differ: tasks are told apart by their number.
    """
    if before.header.digest != after.header.digest:
        return None

    def by_task(evaluation: AgentEvaluation) -> dict[int, float]:
        found: dict[int, list[float]] = defaultdict(list)
        for row, reward in zip(evaluation.rows, primary_rewards(evaluation), strict=True):
            found[row.cluster].append(reward)
        return {task: sum(rewards) / len(rewards) for task, rewards in found.items()}

    return paired_difference(by_task(after), by_task(before), after.header.seed)


def write_page(run_dir: Path) -> Path:
    """Write the page of all evaluations of a run; returns its path."""
    evaluations = Record(run_dir, AttemptRow).read()
    sections = [Section("Held-out tasks, with 95 % intervals over tasks", tables=[evaluation_table(evaluations)])]
    return Page(f"Evaluations of {run_dir.name}", sections).write(run_dir / PAGE_FILE)


def evaluation_table(evaluations: Sequence[AgentEvaluation]) -> Table:
    """A row for each evaluation; gains are over the first, under the same conditions."""
    found = [figures_of(evaluation) for evaluation in evaluations]
    names = [name for name in dict.fromkeys(name for figures in found for name in figures) if name.startswith(_OF_NAME)]
    rows = [
        (
            evaluation.header.label,
            *(value_text(figures.get(name)) for name in names),
            signed_text(gain(evaluations[0], evaluation), digits=3) if evaluation is not evaluations[0] else "",
            share_text(figures["invalid_calls"], 1),
            share_text(figures["failed"], 1),
            value_text(figures["calls"], 1),
            str(len(evaluation.rows)),
            str(evaluation.not_finished),
        )
        for evaluation, figures in zip(evaluations, found, strict=True)
    ]
    shown = (name.removeprefix(_OF_NAME) for name in names)
    head = ("evaluation", *shown, "gain by task", "invalid tool calls", "failed", "calls per attempt", "attempts",
            "not finished")  # fmt: skip
    return Table("Mean rewards", head, rows)


def _digest_of(what: Any) -> str:
    return hashlib.blake2b(repr(what).encode(), digest_size=4).hexdigest()
