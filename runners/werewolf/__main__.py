"""``python -m runners.werewolf``: take Werewolf games from the hub and play them.

``--dry-run`` plays one game and prints every model call; ``play`` plays one without a hub and without a model; ``web``
shows games in a browser, and lets people play.

Needs no GPU and no torch. Start as many as you like, on any number of machines, before or after the
hub and the algorithm. Ctrl-C (or SIGTERM) finishes the games under way; a second one hands them back at once, and so
does SIGHUP. ``--processes`` starts several on this machine, for more cores.

Exit status: 0; 2 for a command line that cannot be used; 69 (``EX_UNAVAILABLE``) when the hub stayed away or refused
us; 130 when stopped before the hub had answered.
"""

import argparse
import asyncio
import sys
from pathlib import Path

from runners.command_line import add_worker_options, log_to_terminal, positive, run_fleet, run_worker
from runners.keys import ApiKeys
from runners.processes import EXIT_INTERRUPTED
from runners.werewolf.game import PRESETS
from runners.werewolf.local import add_play_command, players_by_side
from runners.werewolf.web.command import add_web_command


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line; exits with a usage message when it cannot be used."""
    parser = argparse.ArgumentParser(
        prog="python -m runners.werewolf",
        description="Take Werewolf games from the hub, play them at an AgentScope table, store a span per turn.",
        epilog="`python -m runners.werewolf play --help` is about games on this machine alone, `web --help` about "
        "watching and playing in a browser.",
    )
    parser.add_argument(
        "--tokenizer",
        type=Path,
        metavar="DIR",
        help="folder of the policy's tokenizer; by default the folder that the policy's server names, if it is on this "
        "machine, and else the server's own tokenizer",
    )
    add_worker_options(parser, "games")
    parser.add_argument(
        "--api-key",
        action="append",
        default=[],
        metavar="NAME=URL",
        help="the key in the environment variable NAME may be sent to this address, for opponents or a judge there, "
        "e.g. OPENAI_API_KEY=https://api.openai.com; may be repeated. No other key is read or sent",
    )
    parser.add_argument("--api-keys", type=Path, metavar="FILE", help="more of them, one a line")
    _add_dry_run(parser)
    commands = parser.add_subparsers(title="commands", metavar="play|web")
    add_play_command(commands)
    add_web_command(commands)
    options = parser.parse_args(arguments)
    if "run" not in options:
        if options.dry_run and options.processes > 1:
            parser.error("--processes: not with --dry-run, which plays one game")
        if bool(options.endpoint) != bool(options.model):
            parser.error("--endpoint and --model go together: a server, and the name of its model")
        try:
            options.keys = ApiKeys.read(options.api_key, options.api_keys)
        except (OSError, ValueError) as error:
            parser.error(f"--api-key, --api-keys: {error}")
    return options


def _add_dry_run(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "dry run", "One game, every model call printed; nothing is stored, and the hub is only read."
    )
    group.add_argument("--dry-run", action="store_true", help="play one game of the newest policy that the hub knows")
    group.add_argument("--endpoint", metavar="URL", help="play a model that vLLM serves here, without a hub")
    group.add_argument("--model", metavar="NAME", help="its name there")
    group.add_argument("--temperature", type=float, metavar="T", help="its sampling temperature (default: 1.0)")
    group.add_argument("--thinking", action="store_true", help="let it think before it answers, if it can")
    group.add_argument("--preset", choices=list(PRESETS), help="rules (default: 5p_tiny)")
    group.add_argument("--seed", type=int, metavar="N", help="deals the cards and seeds the sampling (default: 1)")
    group.add_argument(
        "--players",
        type=players_by_side,
        metavar="NAMES",
        help="who plays: policy, expert, patient, scripted, timid, random or a model of the run, or by side: "
        "wolf=policy,good=scripted (default: policy)",
    )
    group.add_argument(
        "--context-tokens", type=positive, metavar="N", help="most tokens of one call (default: the server's limit)"
    )
    group.add_argument(
        "--reply-tokens", type=positive, metavar="N", help="most tokens sampled for one reply (default: 256)"
    )


def open_play(options: argparse.Namespace, client):
    """What plays the games."""
    from runners.addresses import Addresses  # these take seconds, which --help should not have to wait for
    from runners.werewolf.werewolf_play import WerewolfPlay

    return WerewolfPlay(
        client,
        options.tokenizer,
        policy_timeout_seconds=options.policy_timeout,
        keys=options.keys,
        addresses=Addresses(options.store, options.allow_address),
    )


def main() -> int:
    """Entry point."""
    options = parse_arguments()
    if "run" in options:
        return options.run(options)
    log_to_terminal(options)
    if options.processes > 1:
        return run_fleet("runners.werewolf", options)
    try:
        return asyncio.run(
            _dry_run(options) if options.dry_run else run_worker(options, lambda client: open_play(options, client))
        )
    except KeyboardInterrupt:  # a runner: before the worker was ready to take it
        if options.dry_run:
            print("\nthe game was left", file=sys.stderr)
        return EXIT_INTERRUPTED


async def _dry_run(options: argparse.Namespace) -> int:
    from runners.werewolf.dry_run import dry_run  # as in ``open_play``

    return await dry_run(options)


if __name__ == "__main__":
    sys.exit(main())
