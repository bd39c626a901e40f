"""Held-out deals in the middle of a training run, played with the policy as it stands."""

from algo.evaluation.outcomes import EVALUATIONS_FOLDER
from algo.evaluation.page import write_page
from algo.evaluation.play import evaluate
from algo.loop.workload import EvaluatedPolicy, EvaluationResult
from algo.machine.progress import game_progress
from configs.werewolf import WerewolfConfig


async def evaluate_in_training(
    config: WerewolfConfig, policy: EvaluatedPolicy, step: int, resumed: bool
) -> EvaluationResult:
    """Play held-out deals against the panel; the score is the win rate against all of it.

    resumed: an earlier process of the run may have begun this evaluation.
    """
    label = f"step {step}"
    games = 2 * config.evaluation.deals * len(config.evaluation.opponents)
    with game_progress(f"evaluation after {label}", games) as on_progress:
        evaluation = await evaluate(
            config, policy.queue, policy.resources(), policy.keep_serving, on_progress, label, resumed=resumed
        )
    evaluation.write(config.run_dir / EVALUATIONS_FOLDER / f"step-{step:06d}.json")
    write_page(config.run_dir)
    metrics = evaluation.metrics()
    return EvaluationResult(metrics, metrics.get("evaluation/win_rate"))
