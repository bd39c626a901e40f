"""The game as a workload: what it gives to the training loop (``algo.loop.workload``)."""

from collections.abc import Mapping, Sequence
from typing import Any

from algo.evaluation.outcomes import EVALUATIONS_FOLDER
from algo.evaluation.page import write_page
from algo.evaluation.play import evaluate
from algo.loop.workload import EvaluatedPolicy, EvaluationResult
from algo.machine.progress import game_progress
from algo.rollouts.queue import PlayedRollouts
from algo.rollouts.triplets import FinishedRollout
from algo.sequences.trajectories import ActorReward
from algo.werewolf.metrics import game_metrics
from algo.werewolf.resources import game_resources
from algo.werewolf.rewards import game_rewards
from algo.werewolf.tasks import step_tasks
from configs.opponents import INITIAL_POLICY
from configs.werewolf import WerewolfConfig
from store.werewolf import GAME, GameTask


class Werewolf:
    """The game as a workload (``algo.loop.workload.Workload``)."""

    kind = GAME

    def __init__(self, config: WerewolfConfig):
        self.config = config

    def tasks(self, step: int) -> Sequence[GameTask]:
        """The games of one step."""
        return step_tasks(self.config, step)

    def published(self) -> Mapping[str, Any]:
        """The prompts that replace the built-in ones, and the judge."""
        return game_resources(self.config)

    def frozen_names(self) -> Sequence[str]:
        """Frozen policies that the run's games seat."""
        seated = {self.config.game.opponent, *(name for rule in self.config.game.seating for name in rule.players)}
        return sorted(seated & {*self.config.frozen, INITIAL_POLICY})

    def evaluated_names(self) -> Sequence[str]:
        """Frozen policies of the panel."""
        if not self.config.evaluation.wanted:
            return []
        return sorted({*self.config.evaluation.opponents} & {*self.config.frozen, INITIAL_POLICY})

    def rewards_of(self, rollout: FinishedRollout) -> Mapping[str, ActorReward]:
        """What each seat earns."""
        return game_rewards(rollout, self.config.reward)

    def metrics(self, played: PlayedRollouts) -> dict[str, float]:
        """Numbers about the games."""
        return game_metrics(played)

    async def evaluate(self, policy: EvaluatedPolicy, step: int, resumed: bool) -> EvaluationResult:
        """Play held-out deals against the panel; the score is the win rate against all of it."""
        config, label = self.config, f"step {step}"
        games = 2 * config.evaluation.deals * len(config.evaluation.opponents)
        with game_progress(f"evaluation after {label}", games) as on_progress:
            evaluation = await evaluate(
                config, policy.queue, policy.resources(), policy.keep_serving, on_progress, label, resumed=resumed
            )
        evaluation.write(config.run_dir / EVALUATIONS_FOLDER / f"step-{step:06d}.json")
        write_page(config.run_dir)
        metrics = evaluation.metrics()
        return EvaluationResult(metrics, metrics.get("evaluation/win_rate"))
