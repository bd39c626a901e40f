"""How far long work is: a bar on a terminal, a line now and then elsewhere."""

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as ProgressBar

logger = logging.getLogger(__name__)

_LINE_EVERY_SECONDS = 10.0


@contextmanager
def step_progress(title: str, steps: int) -> Iterator[Callable[[], None]]:
    """Shows how far a number of optimizer steps are, as ``game_progress`` shows games; yields what each step calls."""
    if sys.stderr.isatty():
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with ProgressBar(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(title, total=steps)
            yield lambda: bar.advance(task)
        return
    done, last_line = 0, time.monotonic()

    def step() -> None:
        nonlocal done, last_line
        done += 1
        if time.monotonic() - last_line > _LINE_EVERY_SECONDS:
            last_line = time.monotonic()
            logger.info("%s: %d of %d optimizer steps", title, done, steps)

    yield step


@contextmanager
def game_progress(title: str, games: int, steps: tuple[int, int] | None = None) -> Iterator[Any]:
    """Shows how far a number of games are: a bar on a terminal, a line now and then elsewhere.

    steps: those made and all of the run, for a second bar.
    Yields a callback for ``algo.rollouts.queue.Progress``.
    """
    if sys.stderr.isatty():
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with ProgressBar(*columns, console=Console(stderr=True), transient=True) as bar:
            if steps is not None:
                bar.add_task("steps", completed=steps[0], total=steps[1])
            task = bar.add_task(title, total=games)
            yield lambda now: bar.update(task, completed=now.finished + now.failed)
        return
    last_line = time.monotonic()

    def show(now: Any) -> None:
        nonlocal last_line
        if time.monotonic() - last_line > _LINE_EVERY_SECONDS:
            last_line = time.monotonic()
            logger.info(
                "%s: %d of %d finished, %d playing, %d waiting", title, now.finished, games, now.playing, now.waiting
            )

    yield show
