"""``python -m algo.serve``: serve a checkpoint of a run, to play against it in a browser.

Starts a vLLM with the checkpoint, with ``--page`` also the pages, and runs until stopped.
"""

import argparse
import asyncio
import shlex
import sys
from dataclasses import replace
from pathlib import Path

from configs.command_line import add_set_option, exit_on
from configs.loading import as_override, load_config, schema_of
from configs.section import ConfigError
from configs.werewolf import WerewolfConfig
from store.printable import set_up_logging
from store.program import run_program

_LOOK_SECONDS = 5.0


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line; exits with a usage message for an invalid one."""
    parser = argparse.ArgumentParser(
        prog="python -m algo.serve",
        description="Serve a checkpoint of a run with vLLM until stopped, to play against it in a browser.",
    )
    parser.add_argument("run", type=Path, metavar="RUN", help="folder of the run, e.g. runs/tiny_cpu")
    parser.add_argument("--policy", metavar="NAME", help="the policy, for a run with several learning policies")
    parser.add_argument("--step", type=int, metavar="N", help="the checkpoint of this step (default: the newest)")
    add_set_option(parser, example="serving.port=8001")
    parser.add_argument(
        "--page",
        nargs=argparse.REMAINDER,
        metavar="OPTION",
        help="also start the pages; everything after it is an option of `python -m runners.werewolf web`",
    )
    return parser.parse_args(arguments)


def served_checkpoint(options: argparse.Namespace) -> tuple[WerewolfConfig, int]:
    """(the run's configuration, with its checkpoint as the model; the policy's version in it). Raises ConfigError."""
    from algo.machine.ports import free_port
    from algo.run.checkpoints import checkpoint_at, load_state

    run = options.run.resolve()
    checkpoint = checkpoint_at(run, options.step)
    if schema_of(run / "config.yaml") is not WerewolfConfig:
        raise ConfigError(f"{run} trained an agent, which plays no game; its model is {checkpoint / 'huggingface'}")
    model = _policy_in(checkpoint, options.policy) / "huggingface"
    own = (
        as_override("model.path", model.absolute()),
        *("policies={}", "model.lora_rank=0", "serving.mode=start", "serving.urls=[]", "serving.public_urls=[]"),
        *("serving.servers=1", "serving.devices=null", f"serving.port={free_port('127.0.0.1')}"),
        *("serving.share_gpus=false", "serving.weight_transfer=folder", "rollout.max_policy_lag=0"),
    )
    config = load_config(run / "config.yaml", [*own, *options.overrides], WerewolfConfig)
    moved = config.run.model_copy(update={"dir": run.parent, "name": run.name})
    return config.model_copy(update={"run": moved}), load_state(checkpoint).policy_version


def _policy_in(checkpoint: Path, name: str | None) -> Path:
    """The folder with the model of the policy, or of one of several."""
    several = sorted(folder.name for folder in (checkpoint / "policies").glob("*"))
    if not several and name is None:
        return checkpoint
    if name not in several:
        known = f"one of {', '.join(several)}" if several else "or omit it: the run has one policy"
        raise ConfigError(f"{checkpoint}: set --policy to a policy of the run, {known}")
    return checkpoint / "policies" / name


async def serve(config: WerewolfConfig, version: int, page: list[str] | None = None) -> int:
    """Serve until cancelled, or until the pages end; returns their exit code. Raises ServingError.

    page: options of the pages; None: start no pages.
    """
    from algo.machine.processes import start_guarded
    from algo.run.folder import cancel_on_signals
    from algo.serving.launch import policy_launches
    from algo.serving.server_group import ServerGroup

    cancel_on_signals()
    # A separate log, since the run's own vLLM may be running.
    launch = replace(policy_launches(config)[0], log_name="vllm-served.log", version=version)
    async with await ServerGroup.start(config, [launch]) as serving:
        address = serving.endpoints[0]
        command = ["-m", "runners.werewolf", "web", "--runs", str(config.run.dir), "--model-url", address]
        if page is None:
            print(f"serving version {version}; play against it: {shlex.join(['python', *command])}", flush=True)
        pages = None if page is None else start_guarded([sys.executable, *command, *page], None)
        try:
            while pages is None or pages.poll() is None:
                await serving.check_alive()
                await asyncio.sleep(_LOOK_SECONDS)
            return pages.returncode
        finally:
            if pages is not None:
                pages.terminate()
                pages.wait()


def main() -> int:
    """Entry point; the exit status."""
    options = parse_arguments()
    set_up_logging("INFO")
    from algo.serving.preconditions import ServingError

    try:
        with exit_on(ConfigError, ServingError, OSError):
            return asyncio.run(serve(*served_checkpoint(options), options.page))
    except asyncio.CancelledError:
        return 130


if __name__ == "__main__":
    run_program(main)
