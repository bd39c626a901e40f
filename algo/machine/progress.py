"""Progress of long tasks: a log line every ten seconds."""

import itertools
import logging
import time
from collections.abc import Callable
from typing import Any

logger = logging.getLogger(__name__)

_LINE_EVERY_SECONDS = 10.0


def _log_progress(title: str, total: int) -> Callable[[int, str], None]:
    """A function of the number that is done of ``total``, and a suffix of the line."""
    last_line = time.monotonic()

    def show(done: int, line: str) -> None:
        nonlocal last_line
        if time.monotonic() - last_line > _LINE_EVERY_SECONDS:
            last_line = time.monotonic()
            logger.info("%s: %d of %d finished%s", title, done, total, line)

    return show


def step_progress(title: str, steps: int) -> Callable[[], None]:
    """A callback after each of a number of optimizer steps."""
    show, done = _log_progress(title, steps), itertools.count(1)
    return lambda: show(next(done), "")


def game_progress(title: str, games: int) -> Callable[[Any], None]:
    """A callback for ``algo.rollouts.queue.Progress``."""
    show = _log_progress(title, games)
    return lambda now: show(now.finished + now.failed, f", {now.playing} playing, {now.waiting} waiting")
