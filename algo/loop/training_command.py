"""What training programs have in common, ``algo.werewolf_verl`` and ``algo.agent_verl``: options, and a run to its end.

Light to import: ``--help`` and what is refused must not wait for verl.
"""

import argparse
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from configs.command_line import configured_parser
from configs.schema import Config

if TYPE_CHECKING:
    from algo.loop.workload import Workload

AnyConfig = TypeVar("AnyConfig", bound=Config)


def parse_training_arguments(
    program: str,
    description: str,
    arguments: list[str] | None,
    *,
    one: str,
    default: str | None,
    add: Callable[[argparse.ArgumentParser], None] = lambda parser: None,
) -> argparse.Namespace:
    """The command line; exits with a usage message when it cannot be used.

    one: what a rollout is called in the help: game, task. default: see ``configured_parser``.
    add: adds what the program has besides.
    """
    parser = configured_parser(
        program,
        description,
        example="run.steps=5",
        default=default,
        resume=f"go on with the run of this name, from its newest checkpoint and with its {one}s in flight, or begin "
        f"it if there is none",
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help=f"play one {one}, print everything that would reach the update, train nothing",
    )
    add(parser)
    options = parser.parse_args(arguments)
    if options.dry_run and options.resume != "never":
        parser.error("--dry-run trains nothing that could be resumed")
    return options


def training_suffix(options: argparse.Namespace) -> str:
    """What is added to the name of the run."""
    return "-dry-run" if options.dry_run else ""


def run_training(
    config: AnyConfig,
    options: argparse.Namespace,
    workload_of: Callable[[AnyConfig], "Workload"],
    logger: logging.Logger,
) -> int:
    """Train, or show what training would do; returns the exit status, 0 only for a run that made all its steps.

    options: of ``parse_training_arguments``. workload_of: called with the configuration of the run as it was opened.
    """
    # Ray and verl take many seconds to import.
    from ray.exceptions import RayError

    from algo.evaluation.page import wide_console
    from algo.loop.agreement import LogProbMismatch
    from algo.loop.dry_run import dry_run
    from algo.loop.startup import check_before_starting
    from algo.loop.train import train
    from algo.run.command_line import begin_run, run_to_completion
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
    if isinstance(opened, int):
        return opened
    config = opened.config
    logger.info("run %s; everything it writes lies in %s", config.run.name, config.run_dir)
    if opened.state.step >= config.run.steps:
        logger.info("the run has made its %d steps; set run.steps higher to go on", opened.state.step)
        return 0
    workload = workload_of(config)
    status, summary = run_to_completion(
        dry_run(opened, workload, wide_console()) if options.dry_run else train(opened, workload),
        config,
        logger,
        f"interrupted; finished rollouts stay in the hub, checkpoints in {config.run_dir / 'checkpoints'}; "
        f"--resume auto goes on from there",
        {
            LogProbMismatch: "{}",
            Collapsed: "{}: the run ends, as that bound says. --resume auto goes on from the newest checkpoint before "
            "this, best with a smaller training.learning_rate or with reference.kl",
            RayError: "the trainer's Ray workers failed: {}. --resume auto goes on from the last checkpoint",
        },
    )
    if summary is not None:
        show_summary(summary, wide_console())
    return status
