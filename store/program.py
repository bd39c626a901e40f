"""How a program ends."""

import os
import select
import signal
import sys
from collections.abc import Callable
from typing import NoReturn


def run_program(main: Callable[[], int | None]) -> NoReturn:
    """Run a program's main function and exit with ``status_of`` it."""
    sys.exit(status_of(main))


def status_of(main: Callable[[], int | None]) -> int:
    """The status of a program: 130 after Ctrl-C, 1 when the reader of its output has gone.

    SIGTERM raises SystemExit, so that temporary files are removed. ``main`` may handle both signals itself.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
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


def _reader_has_gone(pipe: int) -> bool:
    state = select.poll()
    state.register(pipe, 0)
    return any(event & select.POLLERR for _, event in state.poll(0))
