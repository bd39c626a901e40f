"""A supervisor of several runner processes on one machine.

One process plays many rollouts, but on one core. The supervisor plays none: it starts the processes, restarts those
that die, and forwards signals. Standard library only, so that it is light, and Linux only (PR_SET_PDEATHSIG).

Each process has its own process group, so that Ctrl-C in a terminal reaches the supervisor alone. Two signals control
the processes; unlike SIGTERM they are idempotent, since a service manager may signal every process of a service.
"""

import asyncio
import contextlib
import ctypes
import logging
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence

logger = logging.getLogger(__name__)

DRAIN = signal.SIGUSR1
"""Drain: finish rollouts in flight and take no more."""

HAND_BACK = signal.SIGHUP
"""Hand back rollouts in flight at once. A process receives it also when its supervisor dies, even by ``kill -9``."""

EXIT_INTERRUPTED = 130
"""Exit status of a process that was stopped before it could take a rollout."""

_INTENDED_STATUSES = (os.EX_OK, 2, EXIT_INTERRUPTED)
_RESTART_DELAYS = (1.0, 5.0, 15.0, 30.0, 60.0)
_SETTLED_SECONDS = 60.0
_PR_SET_PDEATHSIG = 1


class Fleet:
    """Keeps ``count`` processes running until each has exited, or all are stopped.

    command: the command of process number 1, 2, …, which handles ``DRAIN`` and ``HAND_BACK``. It exits with 0, 2
    (usage)
        or ``EXIT_INTERRUPTED`` to end, and with ``os.EX_UNAVAILABLE`` when the hub stays unreachable: then it is
        restarted if another process runs, else the fleet ends.
    restart_delays: seconds before the restart after each consecutive death; a process that dies once more is not
        restarted. After a minute of life the count begins again.
    hub_timeout_seconds: after which a process exits with ``os.EX_UNAVAILABLE``.
    """

    def __init__(
        self,
        command: Callable[[int], Sequence[str]],
        count: int,
        restart_delays: Sequence[float] = _RESTART_DELAYS,
        hub_timeout_seconds: float = 0.0,
    ):
        self._command = command
        self._count = count
        self._restart_delays = restart_delays
        self._hub_timeout_seconds = hub_timeout_seconds
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._pid = os.getpid()
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        self._received: signal.Signals | None = None
        self._running: dict[int, asyncio.subprocess.Process | None] = {}
        self._ending = asyncio.Event()
        """No restarts; processes that wait for one end with ``_status``."""
        self._status = os.EX_OK

    def run(self) -> int:
        """Run until all processes have exited; returns the first exit status that is not 0, else 0.

        Call in the main thread. The first SIGINT or SIGTERM drains, the second hands back; SIGHUP, unless ignored
        (nohup), hands back.
        """
        return asyncio.run(self._run())

    async def _run(self) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, lambda: self._signal_all(HAND_BACK if self._received else DRAIN))
        loop.add_signal_handler(DRAIN, self._signal_all, DRAIN)
        if signal.getsignal(HAND_BACK) is not signal.SIG_IGN:
            loop.add_signal_handler(HAND_BACK, self._signal_all, HAND_BACK)
        statuses = await asyncio.gather(*map(self._keep, range(1, self._count + 1)))
        return next(filter(None, statuses), os.EX_OK)

    async def _keep(self, number: int) -> int:
        """Keep one process running; returns the exit status of its last instance, EX_OSERR if it cannot be started."""
        deaths = 0
        while not self._ending.is_set():
            started = time.monotonic()
            try:
                status = await self._play(number)
                reason = f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
            except (OSError, subprocess.SubprocessError) as error:  # no memory or process is left, say
                del self._running[number]
                status, reason = os.EX_OSERR, f"it cannot be started: {error}"
            if self._received is not None and status in (-DRAIN, -HAND_BACK):  # it had just started, without rollouts
                status = EXIT_INTERRUPTED
            shown = status if status >= 0 else 128 - status
            if status in _INTENDED_STATUSES or self._received is not None:
                logger.info("process %d exited (%s)", number, reason)
                return shown
            unavailable = status == os.EX_UNAVAILABLE
            if unavailable and not self._running:
                logger.error("process %d exited (%s), the last one", number, reason)
                self._status = status
                self._ending.set()
                return status
            settled_seconds = _SETTLED_SECONDS + (self._hub_timeout_seconds if unavailable else 0.0)
            deaths = 1 if time.monotonic() - started > settled_seconds else deaths + 1
            if deaths > len(self._restart_delays):
                logger.error("process %d died again (%s): no more restarts", number, reason)
                return shown
            # The longest delay without a hub: by then the others may have exited, too.
            delay = self._restart_delays[-1 if unavailable else deaths - 1]
            logger.error("process %d died (%s); restart in %g s", number, reason, delay)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), delay)
        return self._status

    async def _play(self, number: int) -> int:
        """Run one process to its end; returns its status, negative for a signal."""
        self._running[number] = None
        # Block signals while the child still has our handlers.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, DRAIN, HAND_BACK})

        def prepare() -> None:
            """Run in the new process, before its command."""
            signal.signal(HAND_BACK, signal.SIG_DFL)  # nohup ignores it, but the supervisor sends it
            if self._libc.prctl(_PR_SET_PDEATHSIG, HAND_BACK) != 0:
                raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
            for handled in (signal.SIGINT, signal.SIGTERM, DRAIN):
                signal.signal(handled, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
            if os.getppid() != self._pid:  # the supervisor died before prctl
                os.kill(os.getpid(), signal.SIGKILL)

        starting = asyncio.create_subprocess_exec(*self._command(number), process_group=0, preexec_fn=prepare)
        try:
            process = self._running[number] = await starting
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
        logger.info("process %d started (pid %d)", number, process.pid)
        if self._received is not None:
            self._send(number, self._received)
        status = await process.wait()
        del self._running[number]
        return status

    def _signal_all(self, what: signal.Signals) -> None:
        self._received = what
        self._ending.set()
        if what is DRAIN:
            logger.warning("draining %d processes; stop again to hand back now", len(self._running))
        else:
            logger.warning("handing back the rollouts of %d processes", len(self._running))
        for number in self._running:
            self._send(number, what)

    def _send(self, number: int, what: signal.Signals) -> None:
        process = self._running[number]
        if process is not None:  # else it is starting, and is signalled then
            with contextlib.suppress(ProcessLookupError):  # it has just exited
                process.send_signal(what)
