"""Common parts of the training programs ``algo.werewolf_verl`` and ``algo.agent_verl``: options, and running.

Light to import: ``--help`` and usage errors must not wait for verl.
"""

import argparse
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from configs.command_line import configured_parser
from configs.loading import AnyConfig

if TYPE_CHECKING:
    from algo.loop.workload import Workload


def parse_training_arguments(
    program: str,
    description: str,
    arguments: list[str] | None,
    *,
    one: str,
    default: str | None,
    add: Callable[[argparse.ArgumentParser], None] = lambda parser: None,
) -> argparse.Namespace:
    """Parse the command line; exits with a usage message for an invalid one.

    one: name of a rollout in the help: game, task. default: see ``configured_parser``.
    add: adds options of the program.
    """
    parser = configured_parser(
        program,
        description,
        example="run.steps=5",
        default=default,
        resume=f"resume the run of this name from its newest checkpoint, with its {one}s in flight, or start it if "
        f"there is none",
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help=f"play one {one} and print it up to the training batch, without an update",
    )
    add(parser)
    options = parser.parse_args(arguments)
    if options.dry_run and options.resume != "never":
        parser.error("--dry-run cannot be resumed: omit --resume")
    return options


def training_suffix(options: argparse.Namespace) -> str:
    """Suffix of the run's name."""
    return "-dry-run" if options.dry_run else ""


def run_training(
    config: AnyConfig,
    options: argparse.Namespace,
    workload_of: Callable[[AnyConfig], "Workload"],
    logger: logging.Logger,
) -> int:
    """Train, or dry-run; returns the exit status, 0 only after all steps.

    options: of ``parse_training_arguments``. workload_of: called with the opened run's configuration.
    """
    # Ray and verl take many seconds to import.
    from ray.exceptions import RayError

    from algo.evaluation.page import wide_console
    from algo.loop.dry_run import dry_run
    from algo.loop.startup import check_before_starting
    from algo.loop.train import train
    from algo.run.command_line import begin_run, run_to_completion
    from algo.run.names import resume_options
    from algo.run.summary import show_summary
    from algo.run.watch import Collapsed

    opened = begin_run(
        config,
        options.log_level,
        check_before_starting,
        suffix=training_suffix(options),
        log="algorithm.log",
        resume=options.resume == "auto",
    )
    resume = resume_options(config, opened.config.run.name, training_suffix(options))
    config = opened.config
    logger.info("run %s in %s", config.run.name, config.run_dir)
    if opened.state.step >= config.run.steps:
        logger.info(
            "the run %s has finished its %d steps; increase run.steps to continue", config.run.name, opened.state.step
        )
        return 0
    workload = workload_of(config)
    # The hub of --local ends with this command; agents have no such option.
    hub_stays = getattr(options, "local", None) is None
    summary = run_to_completion(
        dry_run(opened, workload, wide_console()) if options.dry_run else train(opened, workload),
        config,
        logger,
        "interrupted"
        if options.dry_run
        else f"interrupted; {'finished rollouts stay in the hub, ' if hub_stays else ''}checkpoints stay in "
        f"{config.run_dir / 'checkpoints'}; {resume} continues",
        {
            Collapsed: f"{{}}: the run stops (watch.*.stop). {resume} continues from the newest checkpoint before "
            "this; lower training.learning_rate or set reference.kl",
            RayError: f"the trainer's Ray workers failed: {{}}. {resume} continues from the last checkpoint",
        },
    )
    if summary is not None:
        show_summary(summary, wide_console())
    return 0
