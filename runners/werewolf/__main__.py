"""``python -m runners.werewolf``: play Werewolf games from the hub.

``--dry-run`` plays one game and prints every model call; ``play`` plays one without a hub or a model; ``web`` is the
browser interface.

Needs no GPU and no torch. Start any number on any machine, before or after the hub and the algorithm. Ctrl-C (or
SIGTERM) drains; a second one hands back at once, and so does SIGHUP. ``--processes`` uses several cores.

Exit status: 0; 1 for a failed dry run; 2 for an invalid command line; 69 (``EX_UNAVAILABLE``) if the hub stays
unreachable or rejects the runner; 78 (``EX_CONFIG``) if it cannot play; 130 if stopped before the hub answered.
"""

import argparse
import asyncio
import sys
from pathlib import Path

from runners.command_line import add_worker_options, log_to_terminal, positive, run_fleet, run_worker
from runners.keys import ApiKeys
from runners.werewolf.game import PRESETS
from runners.werewolf.local import add_play_command, players_by_side
from runners.werewolf.web.command import add_web_command
from store.players import NAMES_WITHOUT_A_MODEL
from store.program import run_program


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line; exits with a usage message if it is invalid."""
    parser = argparse.ArgumentParser(
        prog="python -m runners.werewolf",
        description="Take Werewolf games from the hub, play them at an AgentScope table, store a span per turn.",
        epilog="See also `python -m runners.werewolf play --help` (games on this machine) and `web --help` (browser).",
    )
    parser.add_argument(
        "--tokenizer",
        type=Path,
        metavar="DIR",
        help="folder of the policy's tokenizer (default: the server's model folder if it exists on this machine, else "
        "the policy server's tokenizer)",
    )
    add_worker_options(parser, "games")
    parser.add_argument(
        "--api-key",
        action="append",
        default=[],
        metavar="NAME=URL",
        help="allow sending the key in the environment variable NAME to this address, for opponents or a judge, e.g. "
        "OPENAI_API_KEY=https://api.openai.com; may be repeated. No other key is read or sent",
    )
    parser.add_argument("--api-keys", type=Path, metavar="FILE", help="file of such NAME=URL lines")
    _add_dry_run(parser)
    commands = parser.add_subparsers(title="commands", metavar="play|web")
    add_play_command(commands)
    add_web_command(commands)
    options = parser.parse_args(arguments)
    if "run" in options and options.dry_run:
        parser.error("--dry-run plays one game itself: omit play and web")
    if "run" not in options:
        if options.dry_run and options.processes > 1:
            parser.error("--processes excludes --dry-run, which plays one game")
        if bool(options.endpoint) != bool(options.model):
            parser.error("--endpoint needs --model, and vice versa")
        if options.endpoint and not options.dry_run:
            parser.error("--endpoint and --model need --dry-run: otherwise the hub names the policy's address")
        try:
            options.keys = ApiKeys.read(options.api_key, options.api_keys)
        except (OSError, ValueError) as error:
            parser.error(f"--api-key, --api-keys: {error}")
    return options


def _add_dry_run(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("dry run", "Play one game and print every model call; nothing is stored.")
    group.add_argument("--dry-run", action="store_true", help="play one game with the hub's newest policy")
    group.add_argument("--endpoint", metavar="URL", help="use a model of the vLLM at this URL, without a hub")
    group.add_argument("--model", metavar="NAME", help="the model's name at --endpoint")
    group.add_argument(
        "--temperature",
        type=float,
        default=1.0,
        metavar="T",
        help="with --endpoint: sampling temperature (default: 1.0)",
    )
    group.add_argument("--thinking", action="store_true", help="with --endpoint: enable the model's thinking mode")
    group.add_argument("--preset", choices=list(PRESETS), default="5p_tiny", help="rules (default: 5p_tiny)")
    group.add_argument("--seed", type=int, default=1, metavar="N", help="seed of deal and sampling (default: 1)")
    group.add_argument(
        "--players",
        type=players_by_side,
        default="policy",
        metavar="NAMES",
        help=f"players: policy, {NAMES_WITHOUT_A_MODEL} or a model of the run; by side: "
        "wolf=policy,good=scripted (default: policy)",
    )
    group.add_argument(
        "--context-tokens", type=positive, metavar="N", help="maximal tokens of one call (default: the server's limit)"
    )
    group.add_argument(
        "--reply-tokens",
        type=positive,
        metavar="N",
        help="maximal tokens of one reply (default: 256, at most a quarter of the context)",
    )


def open_play(options: argparse.Namespace, client):
    """The ``Play`` for games."""
    from runners.addresses import Addresses  # heavy imports, which --help does not need
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
    if not options.dry_run:
        return asyncio.run(run_worker(options, lambda client: open_play(options, client)))
    try:
        from runners.werewolf.dry_run import dry_run  # as in ``open_play``

        return asyncio.run(dry_run(options))
    except KeyboardInterrupt:
        print("\nthe game was interrupted", file=sys.stderr)
        raise


if __name__ == "__main__":
    run_program(main)
