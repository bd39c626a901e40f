"""Options, signals and exit status of ``python -m runners.werewolf`` and ``python -m runners.agents``.

Ctrl-C (or SIGTERM) drains; a second one hands back at once, and so does SIGHUP.
"""

import argparse
import asyncio
import logging
import os
import re
import secrets
import signal
import socket
import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from runners.policy.client import RUNNER_POLICY_TIMEOUT_SECONDS
from runners.processes import DRAIN, EXIT_INTERRUPTED, HAND_BACK, Fleet
from store.printable import set_up_logging
from store.program import number

if TYPE_CHECKING:
    from runners.play import Play

logger = logging.getLogger(__name__)


def add_worker_options(parser: argparse.ArgumentParser, what: str) -> None:
    """Add a worker's options. what: games or tasks."""
    parser.add_argument(
        "--store", default="http://127.0.0.1:4747", metavar="URL", help="address of the hub (default: %(default)s)"
    )
    parser.add_argument(
        "--n", type=positive, default=8, metavar=what.upper(), help=f"concurrent {what} (default: %(default)s)"
    )
    parser.add_argument(
        "--processes",
        type=positive,
        default=1,
        metavar="P",
        help=f"processes, each with --n concurrent {what} on its own core (default: %(default)s)",
    )
    parser.add_argument(
        "--worker-id",
        type=_worker_name,
        metavar="NAME",
        help="unique name of this runner (default: host, process id and a random suffix). With --processes a number "
        "is appended",
    )
    parser.add_argument(
        f"--max-{what}",
        dest="max_rollouts",
        type=positive,
        metavar=what.upper(),
        help=f"exit after this many {what} (each process)",
    )
    parser.add_argument(
        "--idle-exit", type=seconds, metavar="SECONDS", help=f"exit after this long without {what} (each process)"
    )
    parser.add_argument(
        "--hub-timeout",
        type=seconds,
        default=120.0,
        metavar="SECONDS",
        help="how long to retry an unreachable hub (default: %(default)g)",
    )
    parser.add_argument(
        "--policy-timeout",
        type=seconds,
        default=RUNNER_POLICY_TIMEOUT_SECONDS,
        metavar="SECONDS",
        help="how long to retry an unreachable policy server, e.g. during its restart (default: %(default)g); counts "
        "towards rollout.timeout_seconds",
    )
    parser.add_argument(
        "--allow-address",
        action="append",
        default=[],
        metavar="URL",
        help="allow the run's model servers at this origin, e.g. http://gpu-machine:8000; may be repeated. Always "
        "allowed: the hub's machine and private networks",
    )
    parser.add_argument(
        "--log-level",
        default="INFO",
        choices=["DEBUG", "INFO", "WARNING", "ERROR"],
        help="verbosity (default: %(default)s)",
    )
    parser.add_argument("--process-number", type=positive, help=argparse.SUPPRESS)  # set by the supervisor


seconds = number(float, 0)
positive = number(int, 1)


def _worker_name(text: str) -> str:
    if not re.fullmatch(r"[\w.:@-]+", text) or text in (".", "..", "search"):  # it becomes part of URLs
        raise argparse.ArgumentTypeError(
            f"must contain only letters, digits and ._:@-, and not be search, got {text!r}"
        )
    return text


def unique_worker_name() -> str:
    """A unique name: containers may share host names and process ids."""
    host = re.sub(r"[^\w.-]", "-", socket.gethostname())
    return f"{host}-{os.getpid()}-{secrets.token_hex(4)}"


def log_to_terminal(options: argparse.Namespace) -> None:
    """Log to the terminal, with the process number if there are several."""
    number = options.process_number
    set_up_logging(options.log_level, speaker="" if number is None else f"[{number}] ")


def run_fleet(module: str, options: argparse.Namespace) -> int:
    """Run ``options.processes`` processes of ``python -m module`` with the same arguments; returns the exit status."""
    name = options.worker_id or unique_worker_name()
    # The last of repeated options counts.
    own_arguments = ("--processes", "1", "--worker-id", name, "--process-number")

    def command(number: int) -> list[str]:
        return [sys.executable, "-m", module, *sys.argv[1:], *own_arguments, str(number)]

    return Fleet(command, options.processes, hub_timeout_seconds=options.hub_timeout).run()


async def run_worker(options: argparse.Namespace, open_play: Callable[[object], "Play"]) -> int:
    """Play until stopped; returns the exit status.

    open_play: makes the ``Play`` for the hub's client. Its ValueError is logged in one line, with status 2.
    """
    # Heavy imports, which --help and a mistyped option do not need.
    from runners.errors import CannotPlay
    from runners.worker import Worker
    from store.client import StoreUnreachable, connect

    try:
        client = connect(options.store, options.hub_timeout)
        play = open_play(client)
    except ValueError as error:
        logger.error("%s", error)
        return 2
    name = options.worker_id or unique_worker_name()
    worker = Worker(
        client,
        play,
        worker_id=name if options.process_number is None else f"{name}-{options.process_number}",
        max_concurrent=options.n,
        max_rollouts=options.max_rollouts,
        idle_exit_seconds=options.idle_exit,
    )
    running = asyncio.create_task(worker.run())

    def stop(how: Callable[[], None], said: str) -> None:
        if worker.playing:
            logger.warning(said, worker.playing)
        how()
        if not worker.ready:  # still waiting for the hub
            running.cancel()

    drain = partial(stop, worker.drain, "finishing %d rollouts; stop again to hand them back now")
    hand_back = partial(stop, worker.hand_back, "handing back %d rollouts")
    first = iter([drain])

    def interrupt() -> None:
        next(first, hand_back)()

    loop = asyncio.get_running_loop()
    for stops in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(stops, interrupt)
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
    except CannotPlay as error:
        logger.error("%s", error)
        return os.EX_CONFIG
    finally:
        await play.close()
        await client.close()
    counts = (stats.finished, stats.failed, stats.handed_back, stats.turns)
    logger.info("exiting: %d finished, %d failed, %d handed back, %d model calls", *counts)
    return 0
