"""``python -m algo.demo`` (``make demo``): the whole system on one machine, from nothing to a trained policy.

Builds the tiny model, starts the stock hub, a runner and the algorithm as separate processes on free
ports, shows the algorithm's progress, and ends all of them, whatever happens. The three processes are
those of the README's three terminals; nothing here is special to the demo but the starting and stopping.
"""

import argparse
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from rich.console import Console

from algo import child_guard
from algo.tiny_model import MARKER_FILE, build_tiny_model

_GRACE_SECONDS = 45.0
_POLL_SECONDS = 0.2
_console = Console(stderr=True, highlight=False)


class Interrupted(Exception):
    """Ctrl-C, or SIGTERM."""


class Processes:
    """The processes that were started, each under a guard that ends its whole group with us."""

    def __init__(self) -> None:
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, command: Sequence[str], log: IO[bytes] | None) -> None:
        """Start ``command``; its output goes to ``log``, or to this terminal without one."""
        guard = [sys.executable, "-IS", child_guard.__file__, str(os.getpid()), str(_GRACE_SECONDS)]
        self._running[name] = subprocess.Popen(
            [*guard, *command],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT if log else None,
            start_new_session=True,  # Ctrl-C reaches this process alone, which then stops them in order
        )

    def wait_for(self, name: str) -> int:
        """The exit code of ``name``, or of whichever other process ends before it."""
        while True:
            for other, process in self._running.items():
                code = process.poll()
                if code is not None:
                    if other != name:
                        _console.print(f"[red]the {other} ended with exit code {code} while the {name} was running[/]")
                    return code if other == name else code or 1
            time.sleep(_POLL_SECONDS)

    def stop(self) -> None:
        """End all, the last one started first; each in order, by force after the grace period."""
        for process in reversed(self._running.values()):
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                process.wait()
        self._running.clear()


def run_demo(runs_dir: Path, steps: int) -> int:
    """Play and train ``steps`` steps; returns the algorithm's exit code."""
    started = time.monotonic()
    name = time.strftime("demo-%Y%m%d-%H%M%S")
    logs = runs_dir / name / "logs"
    logs.mkdir(parents=True)
    hub_port, vllm_port = _free_ports(2)
    hub = f"http://127.0.0.1:{hub_port}"
    python = [sys.executable, "-m"]
    processes = Processes()
    try:
        _console.print(f"building the tiny model in {runs_dir / 'tiny_model'}")
        model = build_tiny_model(runs_dir / "tiny_model", force=(runs_dir / "tiny_model" / MARKER_FILE).exists())
        with (logs / "hub.log").open("wb") as hub_log, (logs / "runner.log").open("wb") as runner_log:
            agl = str(Path(sys.executable).with_name("agl"))  # the command that agentlightning installs
            hub_command = [agl, "store", "--host", "127.0.0.1", "--port", str(hub_port)]
            processes.start("hub", hub_command, hub_log)
            processes.start("runner", [*python, "runners.werewolf", "--n", "8", "--store", hub], runner_log)
        _console.print(f"hub {hub} (agl store), a runner with 8 games at a time; their logs: {logs}")
        _console.print("starting the algorithm: vLLM and verl take a minute or two to load\n")
        settings = {
            "run.name": name,
            "run.dir": runs_dir,
            "run.steps": steps,
            "store.url": hub,
            "model.path": model,
            "serving.port": vllm_port,
        }
        overrides = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
        processes.start("algorithm", [*python, "algo.werewolf_verl", *overrides], None)
        code = processes.wait_for("algorithm")
    except Interrupted:
        _console.print("\n[yellow]interrupted; stopping everything[/]")
        code = 130
    finally:
        # A second Ctrl-C must not leave half of them behind.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        processes.stop()
    minutes = (time.monotonic() - started) / 60
    if code == 0:
        _console.print(f"[green]done in {minutes:.1f} minutes; all processes have ended.[/]")
    else:
        _console.print(f"[red]stopped with exit code {code} after {minutes:.1f} minutes; logs: {logs}[/]")
    return code


def _free_ports(count: int) -> list[int]:
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [listener.getsockname()[1] for listener in listeners]
    for listener in listeners:
        listener.close()
    return ports


def _interrupt(*_: object) -> None:
    raise Interrupted


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(
        prog="python -m algo.demo",
        description="Run hub, runner and algorithm together on this machine, with a tiny model, and stop them again.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--steps", type=int, default=3, help="training steps")
    parser.add_argument("--runs-dir", type=Path, default=Path("runs"), help="where model and run folders go")
    options = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    return run_demo(options.runs_dir, options.steps)


if __name__ == "__main__":
    sys.exit(main())
