"""``python -m algo.learn_agents`` (``make agents``): does training make an agent better? From a model to a report.

Starts the stock hub, the agent's service where it is one, and a runner, then trains with each seed in turn, evaluated
before and after on tasks that are never trained on, and ends with a report. The processes are those of a run by hand
(section ``local`` of the configuration). What was interrupted goes on with the same ``--directory``.
"""

import argparse
import os
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console

from algo.machine.ports import free_port, is_taken
from algo.machine.processes import (
    Interrupted,
    Processes,
    local_processes,
    program,
    runner_command,
    start_hub,
    start_logged,
)
from algo.reports.terminal import wide_console
from configs.agents import AgentConfig
from configs.command_line import add_set_option
from configs.loading import as_yaml, find_config, load_config
from configs.section import ConfigError

CONFIG_FILE = "config.yaml"
REPORT_FILE = "report.html"
_console = Console(stderr=True, highlight=False)


def begin(options: argparse.Namespace) -> tuple[AgentConfig, Path]:
    """(configuration, the learning run's folder, made or taken up). Raises ConfigError."""
    directory: Path | None = options.directory
    if directory is not None and (directory / CONFIG_FILE).exists():
        if options.config or options.overrides:
            raise ConfigError(
                f"{directory} goes on with the settings that it began with, which lie in {CONFIG_FILE} there: leave "
                f"out --config and --set, or name another folder"
            )
        return load_config(directory / CONFIG_FILE, schema=AgentConfig), directory
    if options.config is None:
        raise ConfigError("name a configuration with --config, e.g. configs/agent_service.yaml")
    config = load_config(options.config, options.overrides, AgentConfig)
    check(config)
    directory = directory or options.runs_dir / time.strftime(f"learn-{config.run.name}-%Y%m%d-%H%M%S")
    directory.mkdir(parents=True, exist_ok=True)
    (directory / CONFIG_FILE).write_text(as_yaml(config), encoding="utf-8")
    return config, directory


def check(config: AgentConfig) -> None:
    """Raise ConfigError for what can neither be run nor compared."""
    from algo.agents.data import read_data

    evaluation = config.evaluation
    if not (evaluation.wanted and evaluation.at_start and evaluation.at_end):
        raise ConfigError(
            "before is compared with after: set evaluation.tasks above 0, and evaluation.at_start and at_end to true"
        )
    if not config.local.runner:
        raise ConfigError(
            "local.runner must say which agent `python -m runners.agents` plays, e.g. --agent module:name"
        )
    read_data(config)
    command_line(config.local.runner, {"port": "0"}, "local.runner")


def command_line(text: str, values: Mapping[str, str], setting: str) -> list[str]:
    """A configured command as arguments, its placeholders filled in. Raises ConfigError, naming the setting."""
    known = {"python": sys.executable, **values}
    try:
        return [part.format_map(known) for part in shlex.split(text)]
    except (ValueError, KeyError, IndexError) as error:
        placeholders = ", ".join(f"{{{name}}}" for name in known)
        raise ConfigError(
            f"{setting} {text!r} is no command line: {error}; its placeholders are {placeholders}"
        ) from error


def training_command(config: AgentConfig, directory: Path, hub: str, seed: int) -> Sequence[str]:
    """The command line of one seed's training."""
    settings = {
        "run.name": f"seed-{seed}",
        "run.dir": directory,
        "run.seed": seed,
        "store.url": hub,
        "serving.port": free_port(),
    }
    overrides = [f"{key}={value}" for key, value in settings.items()]
    return program("algo.agent_verl", directory / CONFIG_FILE, overrides, "--resume", "auto")


def run_all(processes: Processes, config: AgentConfig, directory: Path, seeds: Sequence[int]) -> int:
    """Start everything and train with each seed; 0, or the exit status of what failed.

    Raises Interrupted and ConfigError.
    """
    logs, local = directory / "logs", config.local
    logs.mkdir(exist_ok=True)
    if local.model is not None and not (config.model.path / "config.json").exists():
        _console.print(f"making the model in {config.model.path}")
        command = command_line(local.model, {"model": str(config.model.path)}, "local.model")
        if status := _run(processes, "making of the model", command):
            return status
    hub, port = start_hub(processes, logs), free_port()
    told = [f"hub {hub} (agl store)"]
    if local.service is not None:
        values = {"port": str(port), "model": str(config.model.path)}
        start_logged(processes, "service", command_line(local.service, values, "local.service"), logs)
        _console.print(f"starting the agent's service; its log: {logs / 'service.log'}", soft_wrap=True)
        if status := processes.wait_until(lambda: is_taken(port)):
            return status
        told.append(f"service at port {port}")
    options = command_line(local.runner, {"port": str(port)}, "local.runner")
    start_logged(processes, "runner", runner_command("agents", hub, *options), logs)
    _console.print(f"{', '.join(told)}, a runner; their logs: {logs}", soft_wrap=True)
    for number, seed in enumerate(seeds, start=1):
        _console.print(
            f"\n[bold]training with seed {seed}[/] ({number} of {len(seeds)}): vLLM and verl take a minute or two"
        )
        command = training_command(config, directory, hub, seed)
        if status := _run(processes, f"training with seed {seed}", command):
            return status
    return 0


def _run(processes: Processes, name: str, command: Sequence[str]) -> int:
    processes.start(name, command, None)
    return processes.wait_for(name)


def write_report(directory: Path, config: AgentConfig) -> Path:
    """Write the report over all seeds in the folder, print it as a table, and return its path."""
    # Only now: these take seconds to import.
    from algo.agents.comparison import compared
    from algo.agents.page import before_and_after, write_page

    runs = [compared(folder) for folder in sorted(directory.glob("seed-*"), key=lambda path: int(path.name[5:]))]
    runs = [run for run in runs if run.evaluations]
    path = directory / REPORT_FILE
    write_page(path, f"What {config.run.name} learned", runs, as_yaml(config))
    wide_console().print(before_and_after(runs))
    return path


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line; exits with a usage message when it cannot be used."""
    parser = argparse.ArgumentParser(
        prog="python -m algo.learn_agents",
        description="Show that training makes an agent better: hub, agent and vLLM are started on this machine, each "
        "seed is trained, evaluated before and after on held-out tasks, and a report compares them.",
    )
    parser.add_argument("--config", type=find_config, metavar="FILE", help="configuration, e.g. agent_service")
    add_set_option(parser, "run.steps=10")
    parser.add_argument(
        "--seeds", type=int, nargs="+", default=[1], metavar="SEED", help="one run for each (default: 1)"
    )
    parser.add_argument(
        "--directory",
        type=Path,
        metavar="DIR",
        help="folder to write; one that was begun before is gone on with (default: a new runs/learn-NAME-TIME)",
    )
    parser.add_argument("--runs-dir", type=Path, default=Path("runs"), help="where new folders go (default: runs)")
    options = parser.parse_args(arguments)
    if len(set(options.seeds)) < len(options.seeds) or min(options.seeds) < 0:
        parser.error("--seeds are different numbers, none below 0")
    return options


def main() -> int:
    """Entry point; the exit status is 0 only if every seed was trained."""
    started = time.monotonic()
    options = parse_arguments()
    try:
        config, directory = begin(options)
        with local_processes() as processes:
            try:
                status = run_all(processes, config, directory, options.seeds)
            except Interrupted:
                _console.print("\n[yellow]interrupted; stopping everything[/]")
                status = 130
    except (ConfigError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    minutes = (time.monotonic() - started) / 60
    if status:
        where = os.path.relpath(directory)
        _console.print(
            f"[red]stopped after {minutes:.1f} minutes[/]; logs: {where}/logs and {where}/seed-*/logs; to go on: "
            f"python -m algo.learn_agents --directory {where} --seeds {' '.join(map(str, options.seeds))}",
            soft_wrap=True,
        )
        return status
    path = write_report(directory, config)
    _console.print(f"[green]done in {minutes:.1f} minutes[/]: {path}", soft_wrap=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
