"""Processes that a test starts, found again by a mark in their environment."""

import os
import time
from pathlib import Path

MARK = "WEREWOLF_TEST_MARK"


def marked_environment(mark: Path) -> dict[str, str]:
    """An environment that every descendant process inherits, so that all of them can be found again."""
    return {**os.environ, MARK: str(mark)}


def processes_marked(mark: Path) -> dict[int, str]:
    """The living processes whose environment carries ``mark``: their ids and command lines."""
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


def wait_until(condition, seconds, what):
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"{what} did not happen within {seconds} s"
        time.sleep(0.2)  # other processes tell nobody
    return value
