"""``python -m runners.werewolf``: take Werewolf games from the hub and play them.

``--dry-run`` plays one game and prints every model call; ``play`` plays one without a hub and without a model.

Needs no GPU and no torch. Start as many as you like, on any number of machines, before or after the
hub and the algorithm. Ctrl-C (or SIGTERM) finishes the games under way; a second one hands them back at once, and so
does SIGHUP. ``--processes`` starts several on this machine, for more cores.

Exit status: 0; 2 for a command line that cannot be used; 69 (``EX_UNAVAILABLE``) when the hub stayed away or refused
us; 130 when stopped before the hub had answered.
"""

import argparse
import asyncio
import logging
import math
import os
import re
import secrets
import signal
import socket
import sys
from pathlib import Path

from runners.processes import DRAIN, EXIT_INTERRUPTED, HAND_BACK, Fleet
from runners.werewolf.game import PRESETS
from runners.werewolf.local import add_play_command, players_by_side

logger = logging.getLogger("runners.werewolf")


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line; exits with a usage message when it cannot be used."""
    parser = argparse.ArgumentParser(
        prog="python -m runners.werewolf",
        description="Take Werewolf games from the hub, play them at an AgentScope table, store a span per turn.",
        epilog="`python -m runners.werewolf play --help` is about games on this machine alone.",
    )
    parser.add_argument(
        "--store", default="http://127.0.0.1:4747", metavar="URL", help="address of the hub (default: %(default)s)"
    )
    parser.add_argument(
        "--n", type=_positive, default=8, metavar="GAMES", help="games played at once (default: %(default)s)"
    )
    parser.add_argument(
        "--processes",
        type=_positive,
        default=1,
        metavar="P",
        help="processes, each playing --n games at once on a core of its own (default: %(default)s)",
    )
    parser.add_argument(
        "--tokenizer",
        type=Path,
        metavar="DIR",
        help="folder of the policy's tokenizer; by default the folder that the policy's server names, if it is on this "
        "machine, and else the server's own tokenizer",
    )
    parser.add_argument(
        "--worker-id",
        type=_worker_name,
        metavar="NAME",
        help="name of this runner, different from all others'; by default host, process id and some random letters. "
        "Several --processes are told apart by a number behind it",
    )
    parser.add_argument(
        "--max-games", type=_positive, metavar="GAMES", help="leave after taking this many games (each process)"
    )
    parser.add_argument(
        "--idle-exit", type=_seconds, metavar="SECONDS", help="leave after this long without a game (each process)"
    )
    parser.add_argument(
        "--patience",
        type=_seconds,
        default=120.0,
        metavar="SECONDS",
        help="how long to wait for a hub that is away (default: %(default)g)",
    )
    parser.add_argument(
        "--policy-patience",
        type=_seconds,
        default=90.0,
        metavar="SECONDS",
        help="how long to wait for a policy's server that is away, while it is restarted; keep it below the run's "
        "game.unresponsive_seconds (default: %(default)g)",
    )
    parser.add_argument(
        "--full-token-spans",
        action="store_true",
        help="also store each turn with its whole prompt, as agentlightning's TracerTraceToTriplet reads it (costly)",
    )
    parser.add_argument(
        "--log-level",
        default="INFO",
        choices=["DEBUG", "INFO", "WARNING", "ERROR"],
        help="verbosity (default: %(default)s)",
    )
    parser.add_argument("--process-number", type=_positive, help=argparse.SUPPRESS)  # set by the supervisor
    _add_dry_run(parser)
    add_play_command(parser.add_subparsers(title="commands", metavar="play"))
    options = parser.parse_args(arguments)
    if "run" not in options:
        _check_dry_run(parser, options)
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
        help="who plays: policy, expert, scripted, timid, random or a model of the run, or by side: "
        "wolf=policy,good=scripted (default: policy)",
    )
    group.add_argument(
        "--context-tokens", type=_positive, metavar="N", help="most tokens of one call (default: the server's limit)"
    )
    group.add_argument(
        "--reply-tokens", type=_positive, metavar="N", help="most tokens sampled for one reply (default: 256)"
    )


def _check_dry_run(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    of_endpoint = {"model", "temperature", "thinking"}
    of_dry_run = {"endpoint", "preset", "seed", "players", "context_tokens", "reply_tokens", *of_endpoint}
    given = {name for name in of_dry_run if getattr(options, name) not in (None, False)}
    misplaced = given if not options.dry_run else set() if options.endpoint else given & of_endpoint
    if misplaced:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in sorted(misplaced))
        parser.error(f"{flags}: only with {'--endpoint' if options.dry_run else '--dry-run'}")
    if options.dry_run and options.processes > 1:
        parser.error("--processes: not with --dry-run, which plays one game")
    if options.endpoint and not options.model:
        parser.error("--endpoint needs --model: the name under which the server serves the model")


def _worker_name(text: str) -> str:
    if not re.fullmatch(r"[\w.:@-]+", text):  # it becomes part of addresses
        raise argparse.ArgumentTypeError(f"must be made of letters, digits and ._:@- alone, got {text!r}")
    return text


def unique_worker_name() -> str:
    """A name that no other runner has: containers may share both their host name and their process ids."""
    host = re.sub(r"[^\w.-]", "-", socket.gethostname())
    return f"{host}-{os.getpid()}-{secrets.token_hex(4)}"


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise argparse.ArgumentTypeError(f"must be a finite number of seconds, 0 or more, got {text!r}")
    return seconds


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, got {text!r}")
    return int(text)


async def run(options: argparse.Namespace) -> int:
    """Play until stopped; the process's exit status."""
    # Loading these takes most of the start-up: --help and a mistyped option should not have to wait for it.
    from runners.werewolf.agent import WerewolfPlay
    from runners.worker import Worker
    from store.client import StoreUnreachable, connect

    try:
        client = connect(options.store, options.patience)
    except ValueError as error:
        logger.error("%s", error)
        return 2
    name = options.worker_id or unique_worker_name()
    play = WerewolfPlay(client, options.tokenizer, policy_patience_seconds=options.policy_patience)
    worker = Worker(
        client,
        play,
        worker_id=name if options.process_number is None else f"{name}-{options.process_number}",
        games_at_once=options.n,
        max_games=options.max_games,
        idle_exit_seconds=options.idle_exit,
        full_token_spans=options.full_token_spans,
    )
    running = asyncio.create_task(worker.run())

    def drain() -> None:
        if worker.playing:
            logger.warning("finishing %d games; stop again to hand them back now", worker.playing)
        worker.drain()
        if not worker.ready:  # still waiting for a hub that is not there
            running.cancel()

    def hand_back() -> None:
        logger.warning("handing back %d games", worker.playing)
        worker.hand_back()
        if not worker.ready:
            running.cancel()

    interrupted = False

    def interrupt() -> None:
        nonlocal interrupted
        if interrupted:
            hand_back()
        else:
            drain()
        interrupted = True

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, interrupt)
    loop.add_signal_handler(DRAIN, drain)
    if signal.getsignal(HAND_BACK) is not signal.SIG_IGN:  # nohup
        loop.add_signal_handler(HAND_BACK, hand_back)
    try:
        stats = await running
    except asyncio.CancelledError:
        return EXIT_INTERRUPTED
    except StoreUnreachable as error:
        logger.error("%s", error)
        return os.EX_UNAVAILABLE
    finally:
        await play.close()
        await client.close()
    logger.info(
        "left the table: %d games finished, %d failed, %d handed back, %d turns",
        stats.finished,
        stats.failed,
        stats.handed_back,
        stats.turns,
    )
    return 0


def main() -> int:
    """Entry point."""
    options = parse_arguments()
    if "run" in options:
        return options.run(options)
    speaker = "" if options.process_number is None else f"[{options.process_number}] "
    logging.basicConfig(
        level=options.log_level,
        format=f"%(asctime)s %(levelname).1s {speaker}%(name)s: %(message)s",
        datefmt="%H:%M:%S",
    )
    for noisy in ("httpx", "httpx2", "openai", "agentlightning"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    if options.processes > 1:
        return _run_fleet(options)
    try:
        return asyncio.run(_dry_run(options) if options.dry_run else run(options))
    except KeyboardInterrupt:  # a runner: before the worker was ready to take it
        if options.dry_run:
            print("\nthe game was left", file=sys.stderr)
        return EXIT_INTERRUPTED


def _run_fleet(options: argparse.Namespace) -> int:
    name = options.worker_id or unique_worker_name()
    own_arguments = (
        "--processes",
        "1",
        "--worker-id",
        name,
        "--process-number",
    )  # of options given twice the last counts

    def command(number: int) -> list[str]:
        return [sys.executable, "-m", "runners.werewolf", *sys.argv[1:], *own_arguments, str(number)]

    return Fleet(command, options.processes, patience_seconds=options.patience).run()


async def _dry_run(options: argparse.Namespace) -> int:
    from runners.werewolf.dry_run import dry_run  # as in ``run``

    return await dry_run(options)


if __name__ == "__main__":
    sys.exit(main())
