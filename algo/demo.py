"""``python -m algo.demo`` (``make demo``): the whole system on one machine, from nothing to a trained policy.

Builds the tiny model, starts the stock hub and a runner on free ports, lets the model imitate timid scripted players,
makes a few training steps with an evaluation before and after, shows what came of it, and ends all processes, whatever
happens.
They are those of the README's terminals; nothing here is special to the demo but the starting and stopping.
``algo.learn`` is the same for as long as it takes to become better.
"""

import argparse
import json
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from algo.evaluation.outcomes import Evaluation, read_evaluations
from algo.evaluation.page import estimate_text
from algo.machine.processes import Interrupted, Processes, free_port, local_processes, start_hub_and_runner
from algo.tiny_model import MARKER_FILE, build_tiny_model
from algo.werewolf.game_statistics import Estimate
from algo.werewolf.matches import SIDES
from algo.werewolf.warm_start_folder import MODEL_FOLDER, SUFFIX, SUMMARY_FILE
from configs.loading import CONFIG_DIR, load_config
from configs.section import ConfigError

DEMO_CONFIG = CONFIG_DIR / "demo.yaml"
GAMES_AT_ONCE = 16
_console = Console(stderr=True, highlight=False)


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
    overrides = [part for setting in (*options.overrides, *own) for part in ("--set", setting)]
    return [sys.executable, "-m", module, "--config", str(options.config), *overrides]


def run_demo(options: argparse.Namespace) -> int:
    """Play and train; returns the exit status of what failed, or 0."""
    started = time.monotonic()
    name = time.strftime("demo-%Y%m%d-%H%M%S")
    run_dir, warm_start_dir = options.runs_dir / name, options.runs_dir / f"{name}{SUFFIX}"
    logs = run_dir / "logs"
    logs.mkdir(parents=True)
    with local_processes() as processes:
        try:
            folder = options.runs_dir / "tiny_model"
            _console.print(f"building the tiny model in {folder}")
            model = build_tiny_model(folder, force=(folder / MARKER_FILE).exists())
            hub = start_hub_and_runner(processes, GAMES_AT_ONCE, logs)
            _console.print(f"hub {hub} (agl store), a runner with {GAMES_AT_ONCE} games at a time; their logs: {logs}")
            code = 0
            if options.warm_start:
                _console.print("\n[bold]first, imitation of timid players[/]; verl takes half a minute to load")
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
        show_demo(run_dir, warm_start_dir if options.warm_start else None, Console())
        _console.print(f"[green]done in {minutes:.1f} minutes; all processes have ended.[/]")
    else:
        where = f"{logs}, {warm_start_dir / 'logs'}" if options.warm_start else logs
        _console.print(f"[red]stopped with exit code {code} after {minutes:.1f} minutes; logs: {where}[/]")
    return code


def _run(processes: Processes, name: str, command: list[str]) -> int:
    processes.start(name, command, None)
    return processes.wait_for(name)


def show_demo(run_dir: Path, warm_start_dir: Path | None, console: Console) -> None:
    """Print what was learned, before and after, and one game. warm_start_dir: None where nothing was imitated."""
    table = Table(title="What came of it, with 95 % intervals", title_justify="left")
    for column in ("", "before", "after"):
        table.add_column(column, no_wrap=True)
    if warm_start_dir is not None:
        losses = json.loads((warm_start_dir / SUMMARY_FILE).read_text(encoding="utf-8"))["held_out_loss"]
        table.add_row("imitation: held-out loss, nats a token", f"{losses[0]:.2f}", f"{losses[-1]:.2f}")
    evaluations = read_evaluations(run_dir)
    if evaluations:
        for title, before, after in _compared(evaluations[0], evaluations[-1]):
            table.add_row(f"training: {title}", estimate_text(before), estimate_text(after))
    if table.row_count:
        console.print(table)
    if evaluations:
        games = len(evaluations[-1].games)
        console.print(
            f"{games} held-out games before and after, and few steps between them: how much is learned from more, "
            f"`make learn` shows.",
            highlight=False,
        )
    game = shortest_game(run_dir)
    if game is not None:
        console.rule(str(game))
        console.print(game.read_text(encoding="utf-8"), markup=False, highlight=False)
        console.rule()


def _compared(before: Evaluation, after: Evaluation) -> list[tuple[str, Estimate | None, Estimate | None]]:
    first, last = before.statistics(), after.statistics()
    rows = [("valid replies", _others(first.conduct.invalid_replies), _others(last.conduct.invalid_replies))]
    for opponent, against in last.by_opponent.items():
        earlier = first.by_opponent[opponent]
        for side in SIDES:
            rates = earlier.by_side[side].win_rate, against.by_side[side].win_rate
            rows.append((f"games won as {side} against {opponent}", *rates))
    return rows


def _others(share: Estimate | None) -> Estimate | None:
    """The share of all others."""
    return None if share is None else Estimate(value=1 - share.value, low=1 - share.high, high=1 - share.low)


def shortest_game(run_dir: Path) -> Path | None:
    """The shortest of the games that the last step wrote out; None if it wrote none."""
    games = sorted((run_dir / "transcripts").glob("step-*/*.txt"))
    last = [game for game in games if game.parent == games[-1].parent]
    return min(last, key=lambda game: len(game.read_text(encoding="utf-8")), default=None)


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
        "--config", type=Path, metavar="FILE", default=DEMO_CONFIG, help="configuration (default: configs/demo.yaml)"
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="SECTION.KEY=VALUE",
        dest="overrides",
        help="override one setting, e.g. --set evaluation.deals=100; may be repeated",
    )
    parser.add_argument(
        "--no-warm-start",
        action="store_false",
        dest="warm_start",
        help="begin with random weights, without the imitation",
    )
    return parser.parse_args(arguments)


def main() -> int:
    """Entry point."""
    options = parse_arguments()
    try:
        load_config(options.config, options.overrides)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return run_demo(options)


if __name__ == "__main__":
    sys.exit(main())
