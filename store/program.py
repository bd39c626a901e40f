"""How a program ends, and reads numbers from its command line."""

import argparse
import io
import math
import os
import select
import signal
import sys
from collections.abc import Callable
from typing import Any, NoReturn


def run_program(main: Callable[[], int | None]) -> NoReturn:
    """Run a program's main function and exit with ``status_of`` it."""
    sys.exit(status_of(main))


def status_of(main: Callable[[], int | None]) -> int:
    """The status of a program: 130 after Ctrl-C, 1 when the reader of its output has gone.

    SIGTERM and SIGHUP, unless it is ignored, raise SystemExit, so that temporary files are removed. ``main`` may handle
    signals itself.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, lambda number, _: sys.exit(128 + number))
    if sys.stdout is None:  # it is closed by `>&-`
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Texts are Chinese, and a terminal may have another character set.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        try:
            return main() or 0
        finally:
            sys.stdout.flush()
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except BrokenPipeError:
        if not _reader_has_gone(sys.stdout.fileno()):
            raise  # of another pipe
        # What is left in the buffer would fail again when the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def number(kind: type[int] | type[float], least: float, most: float = math.inf) -> Callable[[str], Any]:
    """A parser of numbers for argparse. least, most: the first and the last valid number."""
    limits = f"of at least {least:g}" if most == math.inf else f"from {least:g} to {most:g}"

    def parse(text: str) -> int | float:
        try:
            value = kind(text)
        except ValueError:
            value = math.nan
        if not (least <= value <= most and value != math.inf):
            raise argparse.ArgumentTypeError(f"{text!r} is not {'an integer' if kind is int else 'a number'} {limits}")
        return value

    return parse


port = number(int, 0, 2**16 - 1)
"""A port to listen on; 0 is a free one."""


def _reader_has_gone(pipe: int) -> bool:
    state = select.poll()
    state.register(pipe, 0)
    return any(event & select.POLLERR for _, event in state.poll(0))
