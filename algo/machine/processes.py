"""Several processes of this system on one machine: started together, ended together, whatever happens."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO

from rich.console import Console

from algo.machine import child_guard
from algo.machine.ports import free_port

GRACE_SECONDS = 45.0
_POLL_SECONDS = 0.2
_console = Console(stderr=True, highlight=False)


class Interrupted(Exception):
    """Ctrl-C, or SIGTERM."""


class Processes:
    """The processes that were started, each under a guard that ends its whole group with us."""

    def __init__(self) -> None:
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, command: Sequence[str], log: IO[bytes] | None) -> None:
        """Start ``command``; its output goes to ``log``, or to this terminal without one."""
        guard = [sys.executable, "-IS", child_guard.__file__, str(os.getpid()), str(GRACE_SECONDS)]
        self._running[name] = subprocess.Popen(
            [*guard, *command],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT if log else None,
            start_new_session=True,  # Ctrl-C reaches this process alone, which then stops them in order
        )

    def wait_for(self, name: str) -> int:
        """The exit code of ``name``, or of whichever other process ends before it (1 where that ended with 0)."""
        while True:
            for other, process in self._running.items():
                code = process.poll()
                if code is None:
                    continue
                if other != name:
                    _console.print(f"[red]the {other} ended with exit code {code} while the {name} was running[/]")
                    return code or 1
                del self._running[name]  # its end is no trouble for those that are waited for next
                return code
            time.sleep(_POLL_SECONDS)

    def wait_until(self, ready: Callable[[], bool]) -> int:
        """0 as soon as something is ready; the exit code of whichever process ends before it (1 where that was 0)."""
        while not ready():
            for name, process in self._running.items():
                code = process.poll()
                if code is not None:
                    _console.print(f"[red]the {name} ended with exit code {code}[/]")
                    return code or 1
            time.sleep(_POLL_SECONDS)
        return 0

    def stop(self) -> None:
        """End all, the last one started first; each in order, by force after the grace period."""
        for process in reversed(self._running.values()):
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                process.wait()
        self._running.clear()


@contextlib.contextmanager
def local_processes() -> Iterator[Processes]:
    """Processes that are stopped when the block is left. In it, Ctrl-C and SIGTERM raise Interrupted."""
    before = {number: signal.signal(number, _interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    processes = Processes()
    try:
        yield processes
    finally:
        # A second Ctrl-C must not leave half of them behind.
        for number in before:
            signal.signal(number, signal.SIG_IGN)
        processes.stop()
        for number, handler in before.items():
            signal.signal(number, handler)


def program(module: str, config: Path, settings: Iterable[str], *options: str) -> tuple[str, ...]:
    """The command line of a program of ours. settings: "section.key=value" each, in place of the configuration's."""
    overrides = (part for setting in settings for part in ("--set", setting))
    return (sys.executable, "-m", module, "--config", str(config), *options, *overrides)


def start_hub_and_runner(processes: Processes, games_at_once: int, logs: Path) -> str:
    """Start the stock hub and a runner of games; returns the hub's address. logs: folder of their logs."""
    hub = start_hub(processes, logs)
    start_logged(processes, "runner", runner_command("werewolf", hub, "--n", str(games_at_once)), logs)
    return hub


def start_hub(processes: Processes, logs: Path) -> str:
    """Start the stock hub on a free port; returns its address. logs: folder of its log."""
    port = free_port()
    agl = str(Path(sys.executable).with_name("agl"))  # the command that agentlightning installs
    start_logged(processes, "hub", [agl, "store", "--host", "127.0.0.1", "--port", str(port)], logs)
    return f"http://127.0.0.1:{port}"


def runner_command(workload: str, hub: str, *options: str) -> list[str]:
    """The command line of a runner. workload: werewolf, agents. hub: its address."""
    return [sys.executable, "-m", f"runners.{workload}", *options, "--store", hub]


def start_logged(processes: Processes, name: str, command: Sequence[str], logs: Path) -> None:
    """Start a command whose output goes to the end of ``name.log`` in the folder ``logs``."""
    with (logs / f"{name}.log").open("ab") as log:
        processes.start(name, command, log)


def _interrupt(*_: object) -> None:
    raise Interrupted
