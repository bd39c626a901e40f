"""``--local``: a command starts its own hub and runner on this machine, and stops them at its end.

The command runs as a child with the hub's address and a free port for vLLM in its settings, as in three terminals. All
processes end with the command, even if it is killed.
"""

import argparse
import sys

from algo.machine.atomic_files import make_private_folder
from algo.machine.ports import free_port
from algo.machine.processes import CONSOLE, Interrupted, local_processes, start_hub, start_runner
from algo.run.names import run_name
from configs.command_line import exit_on
from configs.schema import Config
from store.program import number

_AT_ONCE = 8


def add_local_option(parser: argparse.ArgumentParser, what: str = "games") -> None:
    """Add ``--local``. what: name of rollouts, in the plural."""
    parser.add_argument(
        "--local",
        type=number(int, 0),
        nargs="?",
        const=_AT_ONCE,
        metavar="N",
        help=f"start a hub and a runner of N concurrent {what} on this machine (default: {_AT_ONCE}), and stop them at "
        "the end. The hub is in memory: its rollouts are lost then",
    )


def run_locally(
    module: str, config: Config, options: argparse.Namespace, suffix: str, workload: str, *runner_options: str
) -> int:
    """Start hub, runner and the command itself; returns the command's exit status, 130 when interrupted.

    module: of the command, with the arguments ``sys.argv``. options: its parsed ones, with those of
        ``configured_parser`` and ``add_local_option``.
    suffix: of the run's name; its folder has the logs of hub and runner.
    workload, runner_options: see ``start_runner``.
    """
    with exit_on(OSError, before=f"cannot open the run in run.dir {config.run.dir}: "):
        folder = config.run.dir / run_name(config, getattr(options, "resume", "never") == "auto", suffix)
        make_private_folder(folder)
        logs = folder / "logs"
        logs.mkdir(exist_ok=True)
    own = ["--local", "0"]  # the last one takes precedence: the child starts no hub, and knows that its hub ends
    with local_processes() as processes:
        try:
            hub = start_hub(processes, logs)
            of_runner = [*runner_options, "--n", str(options.local), *runner_permissions(config)]
            start_runner(processes, workload, hub, of_runner, logs)
            CONSOLE.print(
                f"hub {hub} (agl store) and a runner started; their logs: {logs}", soft_wrap=True, markup=False
            )
            for setting in (f"store.url={hub}", *_free_ports(config)):
                own += ["--set", setting]
            name = module.rpartition(".")[2]
            processes.start(name, [sys.executable, "-m", module, *sys.argv[1:], *own], None)
            return processes.wait_for(name)
        except Interrupted:
            CONSOLE.print("\ninterrupted; stopping everything")
            return 130


def runner_permissions(*configs: Config) -> list[str]:
    """Runner options that allow the endpoints and API keys of these configurations."""
    keys, addresses = set[str](), set[str]()
    for config in configs:
        for model in config.endpoints().values():
            if model.api_key_env:
                keys.add(f"{model.api_key_env}={model.url}")
            elif model.endpoint:
                addresses.add(model.endpoint)
        addresses.update(config.serving.public_urls or config.serving.urls)
        addresses.update(policy.url for policy in config.frozen.values() if policy.url)
    named = (*(("--api-key", key) for key in sorted(keys)), *(("--allow-address", url) for url in sorted(addresses)))
    return [part for option in named for part in option]


def _free_ports(config: Config) -> list[str]:
    return [f"serving.port={free_port()}"] if config.serving.mode == "start" else []
