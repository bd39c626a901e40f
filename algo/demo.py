"""``python -m algo.demo`` (``make demo``): the whole system on one machine, from nothing to a trained policy.

Builds the tiny model, starts the stock hub, a runner and the algorithm as separate processes on free
ports, shows the algorithm's progress, and ends all of them, whatever happens. The three processes are
those of the README's three terminals; nothing here is special to the demo but the starting and stopping.
"""

import argparse
import sys
import time
from pathlib import Path

from rich.console import Console

from algo.local_processes import Interrupted, free_ports, local_processes, start_hub_and_runner
from algo.tiny_model import MARKER_FILE, build_tiny_model

_console = Console(stderr=True, highlight=False)


def run_demo(runs_dir: Path, steps: int) -> int:
    """Play and train ``steps`` steps; returns the algorithm's exit code."""
    started = time.monotonic()
    name = time.strftime("demo-%Y%m%d-%H%M%S")
    logs = runs_dir / name / "logs"
    logs.mkdir(parents=True)
    with local_processes() as processes:
        try:
            _console.print(f"building the tiny model in {runs_dir / 'tiny_model'}")
            model = build_tiny_model(runs_dir / "tiny_model", force=(runs_dir / "tiny_model" / MARKER_FILE).exists())
            hub = start_hub_and_runner(processes, 8, logs)
            _console.print(f"hub {hub} (agl store), a runner with 8 games at a time; their logs: {logs}")
            _console.print("starting the algorithm: vLLM and verl take a minute or two to load\n")
            settings = {
                "run.name": name,
                "run.dir": runs_dir,
                "run.steps": steps,
                "store.url": hub,
                "model.path": model,
                "serving.port": free_ports(1)[0],
            }
            overrides = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
            processes.start("algorithm", [sys.executable, "-m", "algo.werewolf_verl", *overrides], None)
            code = processes.wait_for("algorithm")
        except Interrupted:
            _console.print("\n[yellow]interrupted; stopping everything[/]")
            code = 130
    minutes = (time.monotonic() - started) / 60
    if code == 0:
        _console.print(f"[green]done in {minutes:.1f} minutes; all processes have ended.[/]")
    else:
        _console.print(f"[red]stopped with exit code {code} after {minutes:.1f} minutes; logs: {logs}[/]")
    return code


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
    return run_demo(options.runs_dir, options.steps)


if __name__ == "__main__":
    sys.exit(main())
