"""``python -m algo.werewolf_verl``: train a policy to play Werewolf by reinforcement learning.

``algo.loop.train`` is the loop, ``algo.werewolf.workload`` what the game gives it.
"""

import argparse
import logging
import sys

from configs.command_line import add_configuration_options, read_configuration
from configs.model_folder import check_model_folders
from configs.werewolf import WerewolfConfig

logger = logging.getLogger("algo.werewolf_verl")


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
    config = read_configuration(options, WerewolfConfig, check_model_folders)
    return config if isinstance(config, int) else run(config, options)


def run(config: WerewolfConfig, options: argparse.Namespace) -> int:
    """Train, or show what training would do; returns the exit status."""
    # Ray and verl take many seconds to import.
    from ray.exceptions import RayError
    from rich.console import Console

    from algo.loop.agreement import WeightsNotServed
    from algo.loop.command_line import begin_run, run_to_its_end
    from algo.loop.dry_run import dry_run
    from algo.loop.startup import check_before_starting
    from algo.loop.summary import show_summary
    from algo.loop.train import train
    from algo.werewolf.watching import how_to_watch
    from algo.werewolf.workload import Werewolf

    opened = begin_run(
        config,
        options.log_level,
        check_before_starting,
        suffix="-dry-run" if options.dry_run else "",
        log="algorithm.log",
        resume=options.resume == "auto",
    )
    if isinstance(opened, int):
        return opened
    config = opened.config
    logger.info("run %s; everything it writes lies in %s", config.run.name, config.run_dir)
    logger.info("%s", how_to_watch(config))
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
