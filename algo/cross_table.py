"""``python -m algo.cross_table``: who beats whom, every player on either side against every other and against itself.

``algo.evaluation.cross_table`` does the work.
"""

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from configs.command_line import add_configuration_options, read_configuration
from configs.model_folder import check_model_folder
from configs.section import ConfigError
from configs.sections.opponents import INITIAL_POLICY, unknown_player
from configs.werewolf import WerewolfConfig

logger = logging.getLogger("algo.cross_table")

DEFAULT_PLAYERS = ("random", "scripted", "policy")


def check_players(players: Sequence[str], config: WerewolfConfig) -> None:
    """Raise ConfigError for a player that is unknown or named twice."""
    for name in players:
        if name != INITIAL_POLICY and (problem := unknown_player(name, [*config.players, *config.frozen])):
            raise ConfigError(f"--players: {problem}")
    if len(set(players)) < len(players):
        raise ConfigError(f"--players {' '.join(players)}: a player is named twice")


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line; exits with a usage message when it cannot be used."""
    parser = argparse.ArgumentParser(
        prog="python -m algo.cross_table",
        description="Who beats whom: each player as the wolves against each as the good side, itself included, on "
        "held-out deals, through the hub and its runners.",
    )
    add_configuration_options(parser, example="game.preset=9p")
    parser.add_argument("--model", type=Path, metavar="FOLDER", help="the policy's folder (default: model.path)")
    parser.add_argument(
        "--deals", type=int, metavar="N", help="deals, each played once in every cell (default: evaluation.deals)"
    )
    parser.add_argument(
        "--players",
        nargs="+",
        metavar="NAME",
        default=list(DEFAULT_PLAYERS),
        help="random, timid, scripted, expert, policy, initial (the weights in model.path), or names of the sections "
        f"players and frozen (default: {' '.join(DEFAULT_PLAYERS)})",
    )
    return parser.parse_args(arguments)


def _deals(config: WerewolfConfig, options: argparse.Namespace) -> int:
    return config.evaluation.deals if options.deals is None else options.deals


def _check(config: WerewolfConfig, options: argparse.Namespace) -> None:
    if (deals := _deals(config, options)) < 1:
        raise ConfigError(f"{deals} deals are nothing to play; name a number, e.g. --deals 100")
    check_players(options.players, config)
    if "policy" in options.players and config.serving.mode == "start":
        check_model_folder(options.model or config.model.path, "--model" if options.model else "model.path")


def main() -> int:
    """Entry point; the exit status is 0 only for a table of which at least one game finished."""
    options = parse_arguments()
    config = read_configuration(options, WerewolfConfig, lambda config: _check(config, options))
    return config if isinstance(config, int) else run(config, options)


def run(config: WerewolfConfig, options: argparse.Namespace) -> int:
    """Play and show the table; returns the exit status."""
    # agentlightning takes many seconds to import.
    from algo.evaluation.cross_table import play_cross_table, show_cross_table
    from algo.reports.terminal import wide_console
    from algo.run.command_line import begin_run, run_to_its_end

    opened = begin_run(config, options.log_level, suffix="-cross-table", log="cross_table.log")
    if isinstance(opened, int):
        return opened
    status, done = run_to_its_end(
        play_cross_table(opened, options.players, _deals(opened.config, options), options.model),
        opened.config,
        logger,
        "interrupted",
        {},
    )
    if done is None:
        return status
    table, path = done
    console = wide_console()
    show_cross_table(table, console)
    console.print(str(path), highlight=False, markup=False, soft_wrap=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
