"""``python -m algo.werewolf_verl``: train a policy to play Werewolf by reinforcement learning.

The loop is ``algo.loop.train``, the workload ``algo.werewolf.workload``.
"""

import argparse
import logging

from algo.loop.training_command import parse_training_arguments, run_training, training_suffix
from algo.run.local import add_local_option, run_locally
from configs.command_line import read_configuration
from configs.model_folder import check_model_folders
from configs.werewolf import WerewolfConfig
from store.program import run_program

logger = logging.getLogger("algo.werewolf_verl")


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line; exits with a usage message for an invalid one."""
    return parse_training_arguments(
        "algo.werewolf_verl",
        "Train a policy to play Werewolf: games through the hub, updates through verl, serving by vLLM.",
        arguments,
        one="game",
        default="tiny_cpu",
        add=add_local_option,
    )


def main() -> int:
    """Entry point; the exit status is 0 only after all steps."""
    options = parse_arguments()
    config = read_configuration(options, WerewolfConfig, check_model_folders)
    if options.local:
        return run_locally("algo.werewolf_verl", config, options, training_suffix(options), "werewolf")
    # These take seconds.
    from algo.evaluation.play import evaluate_in_training
    from algo.werewolf.file_names import how_to_watch
    from algo.werewolf.workload import Werewolf

    def workload_of(opened: WerewolfConfig) -> Werewolf:
        logger.info("%s", how_to_watch(opened))
        return Werewolf(opened, evaluate_in_training)

    return run_training(config, options, workload_of, logger)


if __name__ == "__main__":
    run_program(main)
