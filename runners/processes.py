"""Several runner processes on one machine: started together, watched, and ended together.

One process plays many games, but on one core. The supervisor below plays none: it starts the processes, starts again
what dies unexpectedly, and hands on what it is told. Standard library only, so that it costs next to nothing, and
Linux only (PR_SET_PDEATHSIG).

The processes lie in process groups of their own, so that Ctrl-C in a terminal reaches the supervisor alone, and are
told by two signals what to do; unlike SIGTERM these may come twice, as from a service manager that signals every
process of a service.
"""

import ctypes
import logging
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

logger = logging.getLogger(__name__)

DRAIN = signal.SIGUSR1
"""Finish the games under way and take no more."""

HAND_BACK = signal.SIGHUP
"""Give up the games under way, at once. A process gets it also when its supervisor is gone, even by ``kill -9``."""

EXIT_INTERRUPTED = 130
"""Exit status of a process that was stopped before it could take a game."""

_DELIBERATE = (os.EX_OK, 2, EXIT_INTERRUPTED)
_RESTART_DELAYS = (1.0, 5.0, 15.0, 30.0, 60.0)
_SETTLED_SECONDS = 60.0
_LONGEST_WAIT_SECONDS = 3600.0
_PR_SET_PDEATHSIG = 1


@dataclass
class _Place:
    """One process of the fleet, and those that stood in its place before.

    deaths: unexpected ones in a row. start_at: when it is to be started (``time.monotonic``); None while it runs.
    status: with which it ended for good; None before that.
    """

    number: int
    deaths: int = 0
    started: float = 0.0
    start_at: float | None = 0.0
    process: subprocess.Popen[bytes] | None = None
    status: int | None = None


class Fleet:
    """Keeps ``count`` processes running until each has ended of its own accord, or all are told to.

    command: the command of process number 1, 2, …; it exits with 0, 2 (usage) or ``EXIT_INTERRUPTED`` when that is how
        it wants to end, with ``os.EX_UNAVAILABLE`` when it has waited in vain for what it needs, and follows ``DRAIN``
        and ``HAND_BACK``. One that has waited in vain is started again while another runs, and else ends the fleet.
    restart_delays: seconds before a process that died is started again, by how often it did in a row; one that dies
        once more is given up. settled_seconds: a process that lived this long has not died "in a row".
    patience_seconds: how long a process waits before it ends with ``os.EX_UNAVAILABLE``.
    """

    def __init__(
        self,
        command: Callable[[int], Sequence[str]],
        count: int,
        restart_delays: Sequence[float] = _RESTART_DELAYS,
        settled_seconds: float = _SETTLED_SECONDS,
        patience_seconds: float = 0.0,
    ):
        self._command = command
        self._places = [_Place(number) for number in range(1, count + 1)]
        self._restart_delays = restart_delays
        self._settled_seconds = settled_seconds
        self._patience_seconds = patience_seconds
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._pid = os.getpid()
        self._told: signal.Signals | None = None

    def run(self) -> int:
        """Run until all processes have ended; the exit status, that of the first process that has another than 0.

        To be called in the main thread of a process without other threads. SIGINT and SIGTERM drain, and hand back
        when they come again; SIGHUP, unless it is ignored (nohup), hands back.
        """
        handled = {signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, DRAIN}
        if signal.getsignal(HAND_BACK) is not signal.SIG_IGN:
            handled.add(HAND_BACK)
        # Blocked, they wait for ``sigtimedwait``, so that none comes at a moment when it would be missed.
        self._mask_before = signal.pthread_sigmask(signal.SIG_BLOCK, handled)
        try:
            while any(place.status is None for place in self._places):
                self._start_due()
                received = signal.sigtimedwait(handled, self._seconds_to_next_start())
                if received is None:
                    continue
                number = signal.Signals(received.si_signo)
                if number in (signal.SIGINT, signal.SIGTERM):
                    self._tell(HAND_BACK if self._told else DRAIN)
                elif number in (DRAIN, HAND_BACK):
                    self._tell(number)
                self._look_who_ended()
        finally:
            for place in self._places:  # none are left, unless an error ends the supervisor
                if place.process is not None:
                    place.process.send_signal(HAND_BACK)
            signal.pthread_sigmask(signal.SIG_SETMASK, self._mask_before)
        return next((place.status for place in self._places if place.status), os.EX_OK)

    def _start_due(self) -> None:
        for place in self._places:
            if place.start_at is not None and place.start_at <= time.monotonic():
                place.process = subprocess.Popen(
                    self._command(place.number), process_group=0, preexec_fn=self._prepare_process
                )
                place.start_at, place.started = None, time.monotonic()
                logger.info("process %d started (pid %d)", place.number, place.process.pid)

    def _prepare_process(self) -> None:
        """Runs in the new process, before its command."""
        signal.signal(HAND_BACK, signal.SIG_DFL)  # nohup is about the terminal, this signal about the supervisor
        if self._libc.prctl(_PR_SET_PDEATHSIG, HAND_BACK) != 0:
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask_before)
        if os.getppid() != self._pid:  # it died before we could ask
            os.kill(os.getpid(), signal.SIGKILL)

    def _seconds_to_next_start(self) -> float:
        due = [place.start_at - time.monotonic() for place in self._places if place.start_at is not None]
        return max(0.0, min(due, default=_LONGEST_WAIT_SECONDS))

    def _tell(self, what: signal.Signals) -> None:
        self._told = what
        running = [place for place in self._places if place.process is not None]
        if what is DRAIN:
            logger.warning("%d processes finish their rollouts; stop again to hand them back now", len(running))
        else:
            logger.warning("%d processes hand their rollouts back", len(running))
        for place in self._places:
            if place.process is not None:
                place.process.send_signal(what)
            elif place.status is None:  # it died and was to be started again
                place.start_at, place.status = None, os.EX_OK

    def _look_who_ended(self) -> None:
        for place in self._places:
            if place.process is None or (status := place.process.poll()) is None:
                continue
            place.process = None
            if self._told is not None and status in (-DRAIN, -HAND_BACK):  # it had just started, and had no games
                status = EXIT_INTERRUPTED
            reason = f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
            if status in _DELIBERATE or self._told is not None:
                logger.info("process %d has ended (%s)", place.number, reason)
                place.status = status if status >= 0 else 128 - status
                continue
            unavailable = status == os.EX_UNAVAILABLE
            if unavailable and all(other.process is None for other in self._places):
                logger.error("process %d has ended (%s), the last of them", place.number, reason)
                self._end_all(status)
                return
            settled_seconds = self._settled_seconds + (self._patience_seconds if unavailable else 0.0)
            place.deaths = 1 if time.monotonic() - place.started > settled_seconds else place.deaths + 1
            if place.deaths > len(self._restart_delays):
                logger.error("process %d died again (%s): it is given up", place.number, reason)
                place.status = status if status > 0 else 128 - status
                continue
            # The longest delay for one that has waited in vain: by then the others may have, too.
            delay = self._restart_delays[-1 if unavailable else place.deaths - 1]
            place.start_at = time.monotonic() + delay
            logger.error("process %d died (%s); it is started again in %g s", place.number, reason, delay)

    def _end_all(self, status: int) -> None:
        """Start none again; none is running."""
        for place in self._places:
            if place.status is None:
                place.start_at, place.status = None, status
