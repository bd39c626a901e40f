"""``python -m runners.werewolf``: take Werewolf games from the hub and play them; ``play``: one game without a hub.

Needs no GPU and no torch. Start as many as you like, on any number of machines, before or after the
hub and the algorithm. Ctrl-C finishes the games under way; a second Ctrl-C hands them back at once.
"""

import argparse
import asyncio
import logging
import os
import signal
import socket
import sys
from pathlib import Path

from runners.werewolf.local import add_play_command

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
        "--tokenizer",
        type=Path,
        metavar="DIR",
        help="folder of the policy's tokenizer; by default the folder that the policy's server names, "
        "if it is on this machine",
    )
    parser.add_argument("--worker-id", metavar="NAME", help="name of this runner; by default host and process id")
    parser.add_argument("--max-games", type=_positive, metavar="GAMES", help="leave after taking this many games")
    parser.add_argument("--idle-exit", type=float, metavar="SECONDS", help="leave after this long without a game")
    parser.add_argument(
        "--patience",
        type=float,
        default=120.0,
        metavar="SECONDS",
        help="how long to wait for a hub that is away (default: %(default)g)",
    )
    parser.add_argument(
        "--log-level",
        default="INFO",
        choices=["DEBUG", "INFO", "WARNING", "ERROR"],
        help="verbosity (default: %(default)s)",
    )
    add_play_command(parser.add_subparsers(title="commands", metavar="play"))
    return parser.parse_args(arguments)


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {number}")
    return number


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
    play = WerewolfPlay(client, options.tokenizer)
    worker = Worker(
        client,
        play,
        worker_id=options.worker_id or f"{socket.gethostname()}-{os.getpid()}",
        games_at_once=options.n,
        max_games=options.max_games,
        idle_exit_seconds=options.idle_exit,
    )
    running = asyncio.create_task(worker.run())
    interrupts = 0

    def interrupt() -> None:
        nonlocal interrupts
        interrupts += 1
        if interrupts > 1:
            logger.warning("handing back %d games", worker.playing)
            worker.hand_back()
        else:
            if worker.playing:
                logger.warning("finishing %d games; press Ctrl-C again to hand them back now", worker.playing)
            worker.drain()
            if not worker.ready:  # still waiting for a hub that is not there
                running.cancel()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, interrupt)
    try:
        stats = await running
    except asyncio.CancelledError:
        return 130
    except StoreUnreachable as error:
        logger.error("%s", error)
        return 1
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
    logging.basicConfig(
        level=options.log_level, format="%(asctime)s %(levelname).1s %(name)s: %(message)s", datefmt="%H:%M:%S"
    )
    for noisy in ("httpx", "openai", "agentlightning"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    try:
        return asyncio.run(run(options))
    except KeyboardInterrupt:  # before the worker was ready to take it
        return 130


if __name__ == "__main__":
    sys.exit(main())
