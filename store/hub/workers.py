"""Several hub processes behind one port: a supervisor, and workers that share a database."""

import asyncio
import logging
import os
import signal
import sys
import time
from contextlib import suppress

from store.errors import OneLineError
from store.hub.server import (
    HubSettings,
    allow_many_connections,
    check_certificate,
    listen,
    open_store,
    require_auth,
    serve,
)

logger = logging.getLogger(__name__)

_TOO_SOON_SECONDS = 5.0
_DELAY_SECONDS = 1.0


def run_workers(settings: HubSettings) -> None:
    """Run ``n_workers`` hubs until SIGINT or SIGTERM; restart dead ones. Raises CannotServe, DatabaseUnusable.

    The kernel distributes connections over them; the clients of a dead worker reconnect to another one.
    """
    require_auth(settings)
    check_certificate(settings)
    allow_many_connections()
    asyncio.run(_check_startup(settings))  # reports errors once, and creates the tables
    with listen(settings.host, settings.port) as alone:  # fails where another program has the port
        port = alone.getsockname()[1]
    _Workers(settings, port).run()


async def _check_startup(settings: HubSettings) -> None:
    async with open_store(settings):
        pass


class _Workers:
    def __init__(self, settings: HubSettings, port: int):
        self._settings = settings
        self._port = port
        self._started: dict[int, float] = {}
        self._ending = False

    def run(self) -> None:
        previous = {number: signal.signal(number, self._end) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            for _ in range(self._settings.n_workers):
                self._fork()
            while self._started:
                pid, status = os.wait()
                born = self._started.pop(pid, None)
                if born is None or self._ending:
                    continue
                logger.error("hub worker %d has died (%s); restarting it", pid, _exit_description(status))
                if time.monotonic() - born < _TOO_SOON_SECONDS:
                    time.sleep(_DELAY_SECONDS)
                if not self._ending:
                    self._fork()
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
        logger.info("all hub workers have stopped")

    def _end(self, *_: object) -> None:
        self._ending = True
        for pid in list(self._started):
            with suppress(ProcessLookupError):  # it has just ended
                os.kill(pid, signal.SIGTERM)

    def _fork(self) -> None:
        watcher = os.getpid()
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                for number in (signal.SIGINT, signal.SIGTERM):
                    signal.signal(number, signal.SIG_DFL)
                asyncio.run(self._serve(watcher))
                status = 0
            except OneLineError as error:
                logger.error("hub worker %d: %s", os.getpid(), error)
            except Exception:  # logged here, since the process ends without a traceback
                logger.exception("hub worker %d failed", os.getpid())
            finally:
                sys.stdout.flush()
                os._exit(status)
        self._started[pid] = time.monotonic()
        if self._ending:  # signalled during the fork
            os.kill(pid, signal.SIGTERM)

    async def _serve(self, watcher: int) -> None:
        with listen(self._settings.host, self._port, shared=True) as listener:
            await serve(self._settings, listener, watcher)


def _exit_description(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    return f"exit status {code}" if code >= 0 else signal.Signals(-code).name
