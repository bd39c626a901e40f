"""``python -m algo.demo`` (``make demo``): the whole system on one machine, from nothing to a trained policy.

Builds the tiny model, starts the stock hub and a runner on free ports, lets the model imitate timid scripted players,
makes a few training steps with an evaluation before and after, shows what came of it, and ends all processes, whatever
happens.
They are those of the README's terminals; nothing here is special to the demo but the starting and stopping.
``--real`` (``make real``) does the same with a pretrained model (``algo.real_model``), which is evaluated before it
imitates, too. ``algo.learn`` is the same for as long as it takes to become better.
"""

import argparse
import sys
import time
from pathlib import Path

from rich.console import Console

from algo.machine.ports import free_port
from algo.machine.processes import Interrupted, Processes, local_processes, program, start_hub_and_runner
from algo.machine.whole_files import make_private
from algo.real_model import NotInstalled, build_real_model
from algo.reports.terminal import wide_console
from algo.tiny_model import MARKER_FILE, build_tiny_model
from algo.werewolf.file_names import MODEL_FOLDER, WARM_START_SUFFIX
from configs.command_line import add_set_option
from configs.loading import CONFIG_DIR, find_config, load_config
from configs.section import ConfigError

DEMO_CONFIG = CONFIG_DIR / "demo.yaml"
REAL_CONFIG = CONFIG_DIR / "smollm2_cpu.yaml"
GAMES_AT_ONCE = 16
# As many as have all their seats in the KV cache of smollm2_cpu.yaml: what falls out of it is computed again.
REAL_GAMES_AT_ONCE = 8
EVALUATION_SUFFIX = "-evaluation"
_console = Console(stderr=True, highlight=False)


def evaluation_command(options: argparse.Namespace, name: str, hub: str, model: Path) -> list[str]:
    """The command line of the evaluation before the imitation."""
    settings = {"run.name": name, "store.url": hub, "model.path": model, "serving.port": free_port()}
    return [*_command("algo.evaluate", options, settings), "--label", "pretrained"]


def warm_start_command(options: argparse.Namespace, name: str, hub: str, model: Path) -> list[str]:
    """The command line of the imitation. name: of the run; model: folder of the random model; hub: its address."""
    return _command("algo.werewolf_sft", options, {"run.name": name, "store.url": hub, "model.path": model})


def training_command(options: argparse.Namespace, name: str, hub: str, model: Path) -> list[str]:
    """The command line of the reinforcement learning. model: what it starts from."""
    settings = {
        "run.name": name,
        "store.url": hub,
        "model.path": model,
        "serving.port": free_port(),
        **({} if options.steps is None else {"run.steps": options.steps}),
    }
    return _command("algo.werewolf_verl", options, settings)


def _command(module: str, options: argparse.Namespace, settings: dict[str, object]) -> list[str]:
    own = [f"{key}={value}" for key, value in (settings | {"run.dir": options.runs_dir}).items()]
    return [*program(module, options.config, [*options.overrides, *own])]


def run_demo(options: argparse.Namespace) -> int:
    """Play and train; returns the exit status of what failed, or 0."""
    started = time.monotonic()
    name = time.strftime("demo-%Y%m%d-%H%M%S")
    run_dir, warm_start_dir = options.runs_dir / name, options.runs_dir / f"{name}{WARM_START_SUFFIX}"
    logs = run_dir / "logs"
    make_private(run_dir)
    logs.mkdir()
    with local_processes() as processes:
        try:
            model = _build_model(options)
            games_at_once = REAL_GAMES_AT_ONCE if options.real else GAMES_AT_ONCE
            hub = start_hub_and_runner(processes, games_at_once, logs)
            _console.print(f"hub {hub} (agl store), a runner with {games_at_once} games at a time; their logs: {logs}")
            code = 0
            if options.real:
                _console.print("\n[bold]what it can before it learns anything[/]; vLLM takes a minute or two to load")
                code = _run(processes, "evaluation", evaluation_command(options, name, hub, model))
            if code == 0 and options.warm_start:
                _console.print("\n[bold]imitation of timid players[/]; verl takes half a minute to load")
                code = _run(processes, "warm start", warm_start_command(options, name, hub, model))
                model = warm_start_dir / MODEL_FOLDER
            if code == 0:
                _console.print("\n[bold]reinforcement learning[/]: vLLM and verl take a minute or two to load")
                code = _run(processes, "algorithm", training_command(options, name, hub, model))
        except Interrupted:
            _console.print("\n[yellow]interrupted; stopping everything[/]")
            code = 130
    minutes = (time.monotonic() - started) / 60
    if code == 0:
        # Only now: agentlightning takes many seconds to import.
        from algo.evaluation.before_after import show_before_and_after

        show_before_and_after(
            run_dir,
            warm_start_dir if options.warm_start else None,
            wide_console(),
            options.runs_dir / f"{name}{EVALUATION_SUFFIX}" if options.real else None,
        )
        _console.print(f"[green]done in {minutes:.1f} minutes; all processes have ended.[/]")
    else:
        where = f"{logs}, {warm_start_dir / 'logs'}" if options.warm_start else logs
        _console.print(f"[red]stopped with exit code {code} after {minutes:.1f} minutes; logs: {where}[/]")
    return code


def _build_model(options: argparse.Namespace) -> Path:
    if options.real:
        folder = options.runs_dir / "smollm2"
        _console.print(f"the pretrained model in {folder}")
        return build_real_model(folder)
    folder = options.runs_dir / "tiny_model"
    _console.print(f"building the tiny model in {folder}")
    return build_tiny_model(folder, force=(folder / MARKER_FILE).exists())


def _run(processes: Processes, name: str, command: list[str]) -> int:
    processes.start(name, command, None)
    return processes.wait_for(name)


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line; exits with a usage message when it cannot be used."""
    parser = argparse.ArgumentParser(
        prog="python -m algo.demo",
        description="Run hub, runner and algorithm together on this machine, with a tiny model, and stop them again.",
    )
    parser.add_argument("--steps", type=int, help="training steps (default: run.steps of the configuration)")
    parser.add_argument(
        "--runs-dir", type=Path, default=Path("runs"), help="where model and run folders go (default: runs)"
    )
    parser.add_argument(
        "--config",
        type=find_config,
        metavar="FILE",
        help="configuration (default: configs/demo.yaml; with --real configs/smollm2_cpu.yaml)",
    )
    parser.add_argument(
        "--real",
        action="store_true",
        help="with the pretrained SmolLM2-135M of the extra real in place of the tiny model: 45 minutes",
    )
    add_set_option(parser, "evaluation.deals=100")
    parser.add_argument(
        "--no-warm-start",
        action="store_false",
        dest="warm_start",
        help="begin with the model as it is, without the imitation",
    )
    options = parser.parse_args(arguments)
    options.config = options.config or (REAL_CONFIG if options.real else DEMO_CONFIG)
    return options


def main() -> int:
    """Entry point."""
    options = parse_arguments()
    try:
        load_config(options.config, options.overrides)
        return run_demo(options)
    except (ConfigError, NotInstalled, FileExistsError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
