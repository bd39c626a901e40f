"""Held-out deals in the middle of a training run, played with the policy as it stands."""

from algo.evaluation.figures import figures_of, metrics_of
from algo.evaluation.play import evaluate
from algo.loop.workload import EvaluatedPolicy, EvaluationResult
from configs.werewolf import WerewolfConfig


async def evaluate_in_training(
    config: WerewolfConfig, policy: EvaluatedPolicy, step: int, resumed: bool
) -> EvaluationResult:
    """Play held-out deals with the policy after ``step``; the score is the win rate against all opponents."""
    evaluation = await evaluate(
        config, policy.queue, policy.resources(), policy.keep_serving, f"step {step}", resumed=resumed, step=step
    )
    metrics = metrics_of(evaluation, figures_of(evaluation))
    return EvaluationResult(metrics, metrics.get("evaluation/win_rate"))
