"""``python -m algo.werewolf_verl``: train a policy to play Werewolf by reinforcement learning.

``algo.loop.train`` is the loop; here stands what the game gives it.
"""

import argparse
import logging
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from ray.exceptions import RayError
from rich.console import Console

from algo.evaluation.outcomes import EVALUATIONS_FOLDER
from algo.evaluation.page import write_page
from algo.evaluation.play import evaluate
from algo.loop.agreement import WeightsNotServed
from algo.loop.command_line import add_configuration_options, begin_run, run_to_its_end
from algo.loop.dry_run import dry_run
from algo.loop.startup import check_before_starting
from algo.loop.summary import show_summary
from algo.loop.train import train
from algo.loop.workload import EvaluationResult, ServedPolicy
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

logger = logging.getLogger("algo.werewolf_verl")


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

    async def evaluate(self, policy: ServedPolicy, step: int, resumed: bool) -> EvaluationResult:
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


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line; exits with a usage message when it cannot be used."""
    parser = argparse.ArgumentParser(
        prog="python -m algo.werewolf_verl",
        description="Train a policy to play Werewolf: games through the hub, updates through verl, serving by vLLM.",
    )
    add_configuration_options(parser, example="run.steps=5")
    parser.add_argument(
        "--resume",
        choices=["never", "auto"],
        default="never",
        help="auto: go on with the run of this name, from its newest checkpoint and with its games in flight, or begin "
        "it if there is none; never (default): begin a run, under a name with a number if the name is taken",
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="play one game, print everything that would reach the update, train nothing",
    )
    options = parser.parse_args(arguments)
    if options.dry_run and options.resume != "never":
        parser.error("--dry-run trains nothing that could be resumed")
    return options


def main() -> int:
    """Entry point; the exit status is 0 only for a run that made all its steps."""
    options = parse_arguments()
    opened = begin_run(
        options,
        check_before_starting,
        suffix="-dry-run" if options.dry_run else "",
        log="algorithm.log",
        resume=options.resume == "auto",
    )
    if isinstance(opened, int):
        return opened
    config = opened.config
    logger.info("run %s; everything it writes lies in %s", config.run.name, config.run_dir)
    if opened.state.step >= config.run.steps:
        logger.info("the run has made its %d steps; set run.steps higher to go on", opened.state.step)
        return 0
    status, summary = run_to_its_end(
        dry_run(opened, Werewolf(config), Console()) if options.dry_run else train(opened, Werewolf(config)),
        config,
        logger,
        f"interrupted; finished games stay in the hub, checkpoints in {config.run_dir / 'checkpoints'}; "
        f"--resume auto goes on from there",
        {
            WeightsNotServed: "{}",
            RayError: "the trainer's Ray workers failed: {}. --resume auto goes on from the last checkpoint",
        },
    )
    if summary is not None:
        show_summary(summary, Console())
    return status


if __name__ == "__main__":
    sys.exit(main())
