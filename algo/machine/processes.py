"""Groups of this system's processes on one machine."""

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from rich.console import Console

from algo.machine import child_guard
from algo.machine.ports import free_port

GRACE_SECONDS = 150.0
"""Longer than the two minutes for which a stopping algorithm may still write its checkpoint."""
_RUNNER_GRACE_SECONDS = 5.0
"""The runner stops after the algorithm, which stops vLLM: a call of a game in flight would be retried for a minute."""
_POLL_SECONDS = 0.2
CONSOLE = Console(stderr=True, highlight=False)


class Interrupted(Exception):
    """Ctrl-C, or another of ``stop_signals``."""


def start_guarded(
    command: Sequence[str],
    log: IO[bytes] | None,
    grace_seconds: float = GRACE_SECONDS,
    environment: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Start a command under ``child_guard``; returns the guard's process. SIGTERM to it ends the command.

    log: for the output; None: this terminal. grace_seconds: from SIGTERM to SIGKILL.
    """
    return subprocess.Popen(
        [sys.executable, "-IS", child_guard.__file__, str(grace_seconds), *command],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=log,
        stderr=subprocess.STDOUT if log else None,
        start_new_session=True,  # Ctrl-C only reaches this process, which stops the others in order
    )


class Processes:
    """Guarded processes by name."""

    def __init__(self) -> None:
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._stopping: subprocess.Popen[bytes] | None = None

    def start(self, name: str, command: Sequence[str], logs: Path | None, grace_seconds: float = GRACE_SECONDS) -> None:
        """See ``start_guarded``. logs: folder in which the output is appended to ``name.log``; None: this terminal."""
        with open(logs / f"{name}.log", "ab") if logs else contextlib.nullcontext() as log:
            self._running[name] = start_guarded(command, log, grace_seconds)

    def wait_for(self, name: str) -> int:
        """The exit code of ``name``, or of another process that ends before it (1 instead of 0)."""
        process = self._running[name]
        return self.wait_until(lambda: process.poll() is not None, name) or self._running.pop(name).returncode

    def wait_until(self, ready: Callable[[], bool], stage: str | None = None) -> int:
        """0 as soon as ``ready``; the exit code of a process other than ``stage`` that ends before (1 instead of 0)."""
        while True:
            for name, process in self._running.items():
                if name != stage and (code := process.poll()) is not None:
                    while_running = f" while the {stage} was running" if stage else ""
                    CONSOLE.print(f"[red]the {name} ended with exit code {code}{while_running}[/]")
                    return code or 1
            if ready():
                return 0
            time.sleep(_POLL_SECONDS)

    def stop(self) -> None:
        """Stop all, in reverse order of their start."""
        for process in reversed(self._running.values()):
            if process.poll() is None:
                self._stopping = process
                process.terminate()
                process.wait()
        self._running.clear()

    def hurry(self) -> None:
        """Signal the process again that ``stop`` waits for: an algorithm then does not finish its checkpoint."""
        if self._stopping is not None:
            self._stopping.terminate()


def stop_signals() -> tuple[signal.Signals, ...]:
    """Signals that end a program cleanly: Ctrl-C, SIGTERM, and that of a closed terminal, unless nohup ignores it."""
    closed = () if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (signal.SIGHUP,)
    return (signal.SIGINT, signal.SIGTERM, *closed)


@contextlib.contextmanager
def local_processes() -> Iterator[Processes]:
    """Processes that stop at the end of the block. In it, ``stop_signals`` raise Interrupted."""
    before = {number: signal.signal(number, _interrupt) for number in stop_signals()}
    processes = Processes()
    try:
        yield processes
    finally:
        # A second Ctrl-C must not leave processes behind.
        for number in before:
            signal.signal(number, lambda *_: processes.hurry())
        processes.stop()
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt(*_: object) -> None:
    raise Interrupted


def program(module: str, config: Path, settings: Iterable[str], *options: str) -> tuple[str, ...]:
    """The command line of one of our programs. settings: overrides "section.key=value"."""
    overrides = (part for setting in settings for part in ("--set", setting))
    return (sys.executable, "-m", module, "--config", str(config), *options, *overrides)


def start_hub(processes: Processes, logs: Path) -> str:
    """Start the stock hub on a free port; returns its address. logs: folder of its log."""
    port = free_port()
    agl = str(Path(sys.executable).with_name("agl"))  # the command that agentlightning installs
    processes.start("hub", [agl, "store", "--host", "127.0.0.1", "--port", str(port)], logs)
    return f"http://127.0.0.1:{port}"


def start_runner(processes: Processes, workload: str, hub: str, options: Sequence[str], logs: Path) -> None:
    """Start a runner. workload: werewolf, agents. hub: its address. options: of the command. logs: its log's folder."""
    command = [sys.executable, "-m", f"runners.{workload}", *options, "--store", hub]
    processes.start("runner", command, logs, _RUNNER_GRACE_SECONDS)
