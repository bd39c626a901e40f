"""Progress of long work: a bar on a terminal, a line every ten seconds elsewhere."""

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as ProgressBar

logger = logging.getLogger(__name__)

_LINE_EVERY_SECONDS = 10.0


@contextmanager
def step_progress(title: str, steps: int) -> Iterator[Callable[[], None]]:
    """Yields a function to call after each of a number of optimizer steps."""
    with _progress(title, steps) as show:
        done = iter(range(1, steps + 1))
        yield lambda: show(next(done), "")


@contextmanager
def game_progress(title: str, games: int, steps: tuple[int, int] | None = None) -> Iterator[Any]:
    """Yields a callback for ``algo.rollouts.queue.Progress``. steps: those made and all of the run, for a 2nd bar."""
    with _progress(title, games, steps) as show:
        yield lambda now: show(now.finished + now.failed, f", {now.playing} playing, {now.waiting} waiting")


@contextmanager
def _progress(title: str, total: int, steps: tuple[int, int] | None = None) -> Iterator[Callable[[int, str], None]]:
    if sys.stderr.isatty():
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with ProgressBar(*columns, console=Console(stderr=True), transient=True) as bar:
            if steps is not None:
                bar.add_task("steps", completed=steps[0], total=steps[1])
            task = bar.add_task(title, total=total)
            yield lambda done, line: bar.update(task, completed=done)
        return
    last_line = time.monotonic()

    def show(done: int, line: str) -> None:
        nonlocal last_line
        if time.monotonic() - last_line > _LINE_EVERY_SECONDS:
            last_line = time.monotonic()
            logger.info("%s: %d of %d finished%s", title, done, total, line)

    yield show
