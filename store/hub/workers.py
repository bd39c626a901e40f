"""Several processes behind one port: one that watches, and its children, each a whole hub over the same database."""

import asyncio
import logging
import multiprocessing
import os
import signal
import time
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess

from store.errors import OneLineError
from store.hub.server import HubSettings, allow_many_connections, check_admission, listen, open_store, serve

logger = logging.getLogger(__name__)

_fork = multiprocessing.get_context("fork")  # a process that imports everything anew starts seconds later
_TOO_SOON_SECONDS = 5.0
_DELAY_SECONDS = 1.0


def run_workers(settings: HubSettings) -> None:
    """Run ``n_workers`` hubs until SIGINT or SIGTERM; one that dies is replaced. Raises CannotServe, DatabaseUnusable.

    The kernel divides connections among them; a client whose hub died connects anew, to one of the others.
    """
    check_admission(settings)
    allow_many_connections()
    asyncio.run(_try_out(settings))  # what is wrong is told once, here, and the tables are made
    with listen(settings.host, settings.port) as alone:  # fails where another program has the port
        port = alone.getsockname()[1]
    _Workers(settings, port).run()


async def _try_out(settings: HubSettings) -> None:
    async with open_store(settings):
        pass


class _Workers:
    def __init__(self, settings: HubSettings, port: int):
        self._settings = settings
        self._port = port
        self._started: dict[BaseProcess, float] = {}
        self._ending = False

    def run(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._end)
        for _ in range(self._settings.n_workers):
            self._start()
        while self._started:
            wait([process.sentinel for process in self._started])
            for process in [one for one in self._started if not one.is_alive()]:
                born = self._started.pop(process)
                if self._ending:
                    continue
                logger.error("hub process %s has died (%s); another takes its place", process.pid, _manner(process))
                if time.monotonic() - born < _TOO_SOON_SECONDS:
                    time.sleep(_DELAY_SECONDS)
                self._start()
        logger.info("all hub processes have stopped")

    def _end(self, *_: object) -> None:
        self._ending = True
        for process in list(self._started):
            process.terminate()

    def _start(self) -> None:
        process = _fork.Process(target=_serve, args=(self._settings, self._port, os.getpid()))
        process.start()
        self._started[process] = time.monotonic()
        if self._ending:  # the signal came in between
            process.terminate()


def _serve(settings: HubSettings, port: int, watcher: int) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    try:
        with listen(settings.host, port, shared=True) as listener:
            asyncio.run(serve(settings, listener, watcher))
    except OneLineError as error:
        logger.error("hub process %d: %s", os.getpid(), error)
        raise SystemExit(1) from None


def _manner(process: BaseProcess) -> str:
    code = process.exitcode or 0
    return f"exit status {code}" if code >= 0 else signal.Signals(-code).name
