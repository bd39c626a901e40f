"""Evaluates an agent: held-out tasks, done with the policy that is served now, and what they show."""

import hashlib
from collections.abc import Sequence
from typing import Any

from algo.agents.comparison import compared, write_comparison
from algo.agents.metrics import check_attempts, invalid_calls, of_policy
from algo.agents.outcomes import EVALUATIONS_FOLDER, AgentEvaluation, AttemptRecord
from algo.agents.page import EVALUATIONS_PAGE, write_page
from algo.agents.tasks import held_out_tasks
from algo.loop.workload import EvaluatedPolicy, EvaluationResult
from algo.machine.progress import game_progress
from algo.rollouts.triplets import FinishedRollout
from algo.run.records import write_transcripts_to
from configs.agents import AgentConfig
from store.agents import AgentOutcome, AgentTask


async def evaluate(
    config: AgentConfig, inputs: Sequence[Any], policy: EvaluatedPolicy, step: int, resumed: bool
) -> EvaluationResult:
    """Do the held-out tasks (section ``evaluation``), and write what they show into the run's folder.

    inputs: held out, at least ``evaluation.tasks``. step, resumed: see ``algo.loop.workload.Workload.evaluate``.
    Raises what ``RolloutQueue.play`` raises, and NothingFinished where all failed (``check_attempts``).
    """
    settings, label = config.evaluation, f"step {step}"
    temperature = settings.temperature or config.rollout.temperature
    resources = policy.resources()
    # By an id of their own: runners remember resources by id. The tasks of an earlier process are known by their name.
    sampling = resources.sampling.model_copy(update={"temperature": temperature})
    resources = resources.model_copy(update={"run_name": f"{resources.run_name}-evaluation", "sampling": sampling})
    digest = hashlib.blake2b(f"{settings.seed}/{temperature}".encode(), digest_size=4).hexdigest()
    tasks = held_out_tasks(config, inputs, f"{config.run.name}-evaluation-step{step:06d}-{digest}")
    with game_progress(f"evaluation after {label}", len(tasks)) as on_progress:
        played = await policy.queue.play(
            tasks, resources, policy.keep_serving, on_progress, resumed=resumed, mode="val"
        )
    evaluation = AgentEvaluation(
        label=label,
        step=step,
        policy_version=resources.version,
        seed=settings.seed,
        temperature=temperature,
        tasks=settings.tasks,
        attempts_at_each=settings.attempts,
        attempts=tuple(_records(tasks, played.finished, settings.attempts)),
        failures=dict(played.failures),
        retried=dict(played.retried),
    )
    evaluation.write(config.run_dir / EVALUATIONS_FOLDER / f"step-{step:06d}.json")
    write_transcripts_to(
        config.run_dir / "transcripts" / f"evaluation-{step:04d}", played.finished[: config.log.transcripts_per_step]
    )
    check_attempts(played)
    found = compared(config.run_dir)
    write_comparison(config.run_dir, found)
    write_page(config.run_dir / EVALUATIONS_PAGE, config.run.name, [found])
    metrics = evaluation.metrics()
    return EvaluationResult(metrics, metrics.get("evaluation/reward"))


def _records(tasks: Sequence[AgentTask], finished: Sequence[FinishedRollout], attempts: int) -> list[AttemptRecord]:
    """What is kept of each finished attempt. tasks: all of the evaluation, ``attempts`` for each input in turn."""
    numbers = {task.task_id: number // attempts for number, task in enumerate(tasks)}
    records = []
    for rollout in finished:
        outcome: AgentOutcome = rollout.outcome
        actors = of_policy(outcome)
        records.append(
            AttemptRecord(
                task=numbers[outcome.task_id],
                rewards=outcome.dimensions,
                failure=outcome.failure,
                calls=sum(actor.turns for actor in actors),
                invalid=int(sum(map(invalid_calls, actors))),
            )
        )
    return records
