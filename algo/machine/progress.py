"""How far long work is: a bar on a terminal, a line now and then elsewhere."""

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as ProgressBar

logger = logging.getLogger(__name__)

_LINE_EVERY_SECONDS = 10.0


@contextmanager
def step_progress(title: str, steps: int) -> Iterator[Callable[[], None]]:
    """Shows how far a number of optimizer steps are; yields what each of them calls."""
    done = 0
    with _progress(title, steps, TimeRemainingColumn()) as show:

        def step() -> None:
            nonlocal done
            done += 1
            show(done, f"{done} of {steps} optimizer steps")

        yield step


@contextmanager
def game_progress(title: str, games: int, steps: tuple[int, int] | None = None) -> Iterator[Any]:
    """Shows how far a number of games are.

    steps: those made and all of the run, for a second bar.
    Yields a callback for ``algo.rollouts.played.Progress``.
    """
    with _progress(title, games, TimeElapsedColumn(), steps) as show:
        yield lambda now: show(
            now.finished + now.failed,
            f"{now.finished} of {games} finished, {now.playing} playing, {now.waiting} waiting",
        )


@contextmanager
def _progress(
    title: str, total: int, time_column: ProgressColumn, steps: tuple[int, int] | None = None
) -> Iterator[Callable[[int, str], None]]:
    """Yields a function of how many are done, for a bar, and of how that is told in a line."""
    if sys.stderr.isatty():
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), time_column)
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
            logger.info("%s: %s", title, line)

    yield show
