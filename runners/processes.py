"""Several runner processes on one machine: started together, watched, and ended together.

One process plays many games, but on one core. The supervisor below plays none: it starts the processes, starts again
what dies unexpectedly, and hands on what it is told. Standard library only, so that it costs next to nothing, and
Linux only (PR_SET_PDEATHSIG).

The processes lie in process groups of their own, so that Ctrl-C in a terminal reaches the supervisor alone, and are
told by two signals what to do; unlike SIGTERM these may come twice, as from a service manager that signals every
process of a service.
"""

import asyncio
import contextlib
import ctypes
import logging
import os
import signal
import time
from collections.abc import Callable, Sequence

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
_PR_SET_PDEATHSIG = 1


class Fleet:
    """Keeps ``count`` processes running until each has ended of its own accord, or all are told to.

    command: the command of process number 1, 2, …; it exits with 0, 2 (usage) or ``EXIT_INTERRUPTED`` when that is how
        it wants to end, with ``os.EX_UNAVAILABLE`` when it has waited in vain for what it needs, and follows ``DRAIN``
        and ``HAND_BACK``. One that has waited in vain is started again while another runs, and else ends the fleet.
    restart_delays: seconds before a process that died is started again, by how often it did in a row; one that dies
        once more is given up. A process that lived for a minute has not died "in a row".
    patience_seconds: how long a process waits before it ends with ``os.EX_UNAVAILABLE``.
    """

    def __init__(
        self,
        command: Callable[[int], Sequence[str]],
        count: int,
        restart_delays: Sequence[float] = _RESTART_DELAYS,
        patience_seconds: float = 0.0,
    ):
        self._command = command
        self._count = count
        self._restart_delays = restart_delays
        self._patience_seconds = patience_seconds
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._pid = os.getpid()
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        self._told: signal.Signals | None = None
        self._running: dict[int, asyncio.subprocess.Process | None] = {}
        self._ending = asyncio.Event()
        """Nothing is started again; what was to be ends with ``_status``."""
        self._status = os.EX_OK

    def run(self) -> int:
        """Run until all processes have ended; the exit status, that of the first process that has another than 0.

        To be called in the main thread. SIGINT and SIGTERM drain, and hand back when they come again; SIGHUP, unless
        it is ignored (nohup), hands back.
        """
        return asyncio.run(self._run())

    async def _run(self) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, lambda: self._tell(HAND_BACK if self._told else DRAIN))
        loop.add_signal_handler(DRAIN, self._tell, DRAIN)
        if signal.getsignal(HAND_BACK) is not signal.SIG_IGN:
            loop.add_signal_handler(HAND_BACK, self._tell, HAND_BACK)
        statuses = await asyncio.gather(*map(self._keep, range(1, self._count + 1)))
        return next(filter(None, statuses), os.EX_OK)

    async def _keep(self, number: int) -> int:
        """Keep one process running; the status with which it, or the last that stood in its place, ended for good."""
        deaths = 0
        while not self._ending.is_set():
            started = time.monotonic()
            status = await self._play(number)
            reason = f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
            if self._told is not None and status in (-DRAIN, -HAND_BACK):  # it had just started, and had no games
                status = EXIT_INTERRUPTED
            shown = status if status >= 0 else 128 - status
            if status in _DELIBERATE or self._told is not None:
                logger.info("process %d has ended (%s)", number, reason)
                return shown
            unavailable = status == os.EX_UNAVAILABLE
            if unavailable and not self._running:
                logger.error("process %d has ended (%s), the last of them", number, reason)
                self._status = status
                self._ending.set()
                return status
            settled_seconds = _SETTLED_SECONDS + (self._patience_seconds if unavailable else 0.0)
            deaths = 1 if time.monotonic() - started > settled_seconds else deaths + 1
            if deaths > len(self._restart_delays):
                logger.error("process %d died again (%s): it is given up", number, reason)
                return shown
            # The longest delay for one that has waited in vain: by then the others may have, too.
            delay = self._restart_delays[-1 if unavailable else deaths - 1]
            logger.error("process %d died (%s); it is started again in %g s", number, reason, delay)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), delay)
        return self._status

    async def _play(self, number: int) -> int:
        """Run one process to its end; its status, negative for a signal."""
        self._running[number] = None
        # Blocked for the moment in which a child still has our handlers.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, DRAIN, HAND_BACK})

        def prepare() -> None:
            """Runs in the new process, before its command."""
            signal.signal(HAND_BACK, signal.SIG_DFL)  # nohup is about the terminal, this signal about the supervisor
            if self._libc.prctl(_PR_SET_PDEATHSIG, HAND_BACK) != 0:
                raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
            for told in (signal.SIGINT, signal.SIGTERM, DRAIN):
                signal.signal(told, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
            if os.getppid() != self._pid:  # it died before we could ask
                os.kill(os.getpid(), signal.SIGKILL)

        starting = asyncio.create_subprocess_exec(*self._command(number), process_group=0, preexec_fn=prepare)
        try:
            process = self._running[number] = await starting
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
        logger.info("process %d started (pid %d)", number, process.pid)
        if self._told is not None:
            self._send(number, self._told)
        status = await process.wait()
        del self._running[number]
        return status

    def _tell(self, what: signal.Signals) -> None:
        self._told = what
        self._ending.set()
        if what is DRAIN:
            logger.warning("%d processes finish their rollouts; stop again to hand them back now", len(self._running))
        else:
            logger.warning("%d processes hand their rollouts back", len(self._running))
        for number in self._running:
            self._send(number, what)

    def _send(self, number: int, what: signal.Signals) -> None:
        process = self._running[number]
        if process is not None:  # else it is being started, and told then
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                process.send_signal(what)
