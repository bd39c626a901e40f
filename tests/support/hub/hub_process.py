"""Real hubs as processes of their own, started in a moment: forked from one that has imported everything."""

import multiprocessing
import os
import signal
import tempfile
import time
from pathlib import Path

import aiohttp

from algo.machine.ports import free_port

_fork = multiprocessing.get_context("forkserver")
_preloaded = ["store.hub.server", "tests.support.hub.hub_process"]


def preload(*modules: str) -> None:
    """What else the processes to come should not have to import themselves; call it before any is forked."""
    _preloaded.extend(modules)
    _fork.set_forkserver_preload(_preloaded)


preload()


def fork(function, *arguments):
    """Call a function in a process of its own."""
    process = _fork.Process(target=function, args=arguments, daemon=True)
    process.start()
    return process


def say_to(log: Path) -> None:
    """Send what this process prints to a file."""
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)


def _hub(log: Path, arguments: list[str], environment: dict[str, str]):
    from store.__main__ import main

    say_to(log)
    os.environ.update(environment)
    raise SystemExit(main(arguments))


def _stock_hub(log: Path, arguments: list[str]):
    from agentlightning.cli.store import main

    say_to(log)
    raise SystemExit(main(arguments))


class HubProcess:
    """``python -m store`` on a fixed port and file, to be killed and started again."""

    def __init__(self, folder: Path, *options: str, **environment: str):
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.database = folder / "hub.sqlite3"
        self.log = folder / "hub.log"
        database = [] if "memory" in options else ["--db", str(self.database)]
        self._arguments = ["--port", str(self.port), *database, *options]
        self._environment = environment
        self.process = None

    async def start(self):
        """Return once it answers."""
        self.process = self._fork()
        deadline = time.monotonic() + 60
        async with aiohttp.ClientSession() as session:
            while True:
                assert self.process.is_alive() and time.monotonic() < deadline, self.log.read_text()
                try:
                    async with session.get(f"{self.url}/v1/agl/health") as response:
                        assert response.status == 200
                        return self
                except aiohttp.ClientConnectionError:
                    self.process.join(0.02)

    def _fork(self):
        return fork(_hub, self.log, self._arguments, self._environment)

    def kill(self):
        """``kill -9``; returns once it is dead."""
        self.process.kill()
        self.process.join()

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Ask it to end; returns its exit status."""
        if self.process.is_alive():
            os.kill(self.process.pid, number)
        self.process.join()
        return self.process.exitcode


class StockHub(HubProcess):
    """``agl store``, which keeps everything in its memory."""

    def _fork(self):
        return fork(_stock_hub, self.log, ["--host", "127.0.0.1", "--port", str(self.port), "--log-level", "WARNING"])


def run_command(*arguments: str) -> tuple[int, str]:
    """(exit status, what it said) of a ``python -m store`` that ends by itself."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "output"
        process = fork(_hub, output, list(arguments), {})
        process.join(60)
        process.kill()  # one that serves after all
        process.join()
        return process.exitcode, output.read_text()
