"""Processes that a test starts; a mark in their environment finds them and their descendants again."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

MARK = "WEREWOLF_TEST_MARK"
ROOT = Path(__file__).parents[2]


def exit_status(program: Callable[..., Any], *arguments: Any) -> Any:
    """What a program's entry point returns, or the status with which it exits."""
    try:
        return program(*arguments)
    except SystemExit as ended:
        return ended.code or 0


def start_module(
    log: Path, module: str, *arguments: str, cwd: Path | None = None, mark: Path | None = None
) -> subprocess.Popen[bytes]:
    """``python -m module``, in a group of its own; what it prints goes to the end of ``log``."""
    return start_logged(log, sys.executable, "-m", module, *arguments, cwd=cwd, mark=mark)


def start_logged(
    log: Path, *command: str, cwd: Path | None = None, mark: Path | None = None
) -> subprocess.Popen[bytes]:
    """Any command, likewise."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)} | ({} if mark is None else {MARK: str(mark)})
    with log.open("ab") as file:
        return subprocess.Popen(
            command, stdout=file, stderr=subprocess.STDOUT, cwd=cwd, env=environment, start_new_session=True
        )


def end(*processes: subprocess.Popen[bytes]) -> None:
    """SIGTERM to the group of each that runs; returns when all have ended."""
    for process in processes:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
    for process in processes:
        process.wait(timeout=60)


def set_options(settings: Mapping[str, Any]) -> list[str]:
    """The command line's options for these settings."""
    return [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]


def processes_marked(mark: Path) -> dict[int, str]:
    """Ids and command lines of the living processes with ``mark`` in their environment."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            environment = (folder / "environ").read_bytes().split(b"\0")
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue  # it has just ended, or is not ours
        if f"{MARK}={mark}".encode() in environment and command:
            found[int(folder.name)] = command
    return found


def wait_until(condition: Callable[[], Any], seconds: float, what: str) -> Any:
    """What ``condition`` gives once that is true. AssertionError after so many seconds."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"{what} did not happen within {seconds} s"
        time.sleep(0.2)  # other processes tell nobody
    return value
