"""``python -m algo.werewolf_sft``: fine-tune a policy on demonstrations, before reinforcement learning.

The implementation is ``algo.werewolf.imitation``.
"""

import argparse
import logging

from algo.run.local import add_local_option, run_locally
from algo.werewolf.file_names import WARM_START_SUFFIX, how_to_watch
from configs.command_line import configured_parser, read_configuration
from configs.model_folder import check_model_folder
from configs.werewolf import WerewolfConfig
from store.program import run_program

logger = logging.getLogger("algo.werewolf_sft")


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line; exits with a usage message for an invalid one."""
    parser = configured_parser(
        "algo.werewolf_sft",
        "Warm start: fine-tune a policy on games of rule-based players, of other models, of people or of a run, before "
        "reinforcement learning. Writes a model folder to start from. Cannot be resumed.",
        example="warm_start.games=200",
    )
    source = parser.add_mutually_exclusive_group()
    source.add_argument(
        "--from-people",
        action="store_true",
        help="imitate the people in demonstration games that they played in a browser and kept in the hub",
    )
    source.add_argument(
        "--from-run",
        metavar="RUN",
        help="imitate the policy in a run's games in the hub, instead of playing new ones; RUN is the name of its "
        "folder under run.dir, or its id",
    )
    add_local_option(parser)
    options = parser.parse_args(arguments)
    if options.local and (options.from_people or options.from_run):
        parser.error("--local starts an empty hub; --from-people and --from-run need the hub with the games")
    return options


def main() -> int:
    """Entry point; the exit status is 0 only if the model was written."""
    options = parse_arguments()
    config = read_configuration(options, WerewolfConfig, lambda config: check_model_folder(config.model.path))
    if options.local:
        return run_locally("algo.werewolf_sft", config, options, WARM_START_SUFFIX, "werewolf")
    return run(config, options)


def run(config: WerewolfConfig, options: argparse.Namespace) -> int:
    """Imitate; returns the exit status."""
    # Ray and verl take many seconds to import.
    from ray.exceptions import RayError

    from algo.evaluation.page import wide_console
    from algo.run.command_line import begin_run, run_to_completion
    from algo.werewolf.demonstrations import NoUsableGames, StoredGames
    from algo.werewolf.imitation import check_warm_start, run_id_of, show_summary, warm_start
    from store.werewolf import DEMONSTRATION

    stored = StoredGames(kept_for=DEMONSTRATION) if options.from_people else None

    def check(config: WerewolfConfig) -> None:
        nonlocal stored
        # Before this run's own folder exists, which could match the name.
        if options.from_run is not None:
            stored = StoredGames(run_id_of(config, options.from_run))
        check_warm_start(config, stored)

    opened = begin_run(config, options.log_level, check, suffix=WARM_START_SUFFIX, log="warm_start.log")
    config = opened.config
    logger.info("warm start %s in %s", config.run.name, config.run_dir)
    logger.info("%s", how_to_watch(config))
    again = "--from-people" if options.from_people else f"--from-run {options.from_run or opened.state.run_id}"
    stays = options.local is None  # the hub of --local ends with this command
    summary = run_to_completion(
        warm_start(opened, stored),
        config,
        logger,
        f"interrupted; finished games stay in the hub: reuse them with {again}" if stays else "interrupted",
        {
            NoUsableGames: "{}",
            RayError: "the trainer's Ray workers failed: {}" + (f". Reuse the games with {again}" if stays else ""),
        },
    )
    show_summary(summary, options.config, wide_console())
    return 0


if __name__ == "__main__":
    run_program(main)
