"""``python -m algo.plan``: whether a run fits its machines, and about how long a step will take; starts nothing."""

import argparse
import sys
from pathlib import Path

from configs.command_line import add_configuration_options, read_configuration
from configs.model_folder import read_architecture
from configs.roles_and_decks import DECKS
from configs.section import ConfigError
from configs.werewolf import WerewolfConfig


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line; exits with a usage message when it cannot be used."""
    parser = argparse.ArgumentParser(prog="python -m algo.plan", description=__doc__.partition(": ")[2])
    add_configuration_options(parser, example="model.lora_rank=32")
    parser.add_argument("--gpu-gib", type=float, help="memory of each GPU (default: of those here, else 79.2)")
    parser.add_argument("--host-gib", type=float, help="memory of the machine (default: of this one, if it has GPUs)")
    parser.add_argument(
        "--run",
        type=Path,
        metavar="DIR",
        help="a run that was made with this configuration: plan with its sequences' lengths, and show its seconds "
        "beside the estimated ones",
    )
    return parser.parse_args(arguments)


def check_architecture(config: WerewolfConfig) -> None:
    """Raise ConfigError unless the model's folder has a config.json, which is all that a plan needs of it."""
    path = config.model.path
    try:
        read_architecture(path)
    except OSError as error:
        raise ConfigError(
            f"model.path {path} has no config.json that can be read: set model.path to a Hugging Face model folder, of "
            f"which a plan needs config.json alone"
        ) from error
    except ValueError as error:
        raise ConfigError(f"model.path: {error}") from error


def main(arguments: list[str] | None = None) -> int:
    """Entry point; the exit status is 0 for a run that fits, and 2 for one that does not."""
    options = parse_arguments(arguments)
    config = read_configuration(options, WerewolfConfig, check_architecture)
    if isinstance(config, int):
        return config
    # These take many seconds to import.
    import torch

    from algo.evaluation.in_training import evaluate_in_training
    from algo.planning.machine import H100_GIB, this_machine
    from algo.planning.plan import make_plan, show_plan
    from algo.planning.seconds import Lengths, measured_seconds
    from algo.reports.terminal import wide_console
    from algo.run.metrics import read_steps
    from algo.serving.frozen import share_out, with_own_server
    from algo.serving.launch import member_servers, pool_servers
    from algo.werewolf.workload import Werewolf

    workload = Werewolf(config, evaluate_in_training)
    alone, _ = share_out(config, workload.frozen_names(), workload.evaluated_names())
    gpu_gib = options.gpu_gib or (None if torch.cuda.is_available() else H100_GIB)
    machine = this_machine(config.training.device, config.model.dtype, gpu_gib=gpu_gib, host_gib=options.host_gib)
    frozen = [*with_own_server(config, alone), *pool_servers(config), *member_servers(config)]
    lengths, measured = None, None
    try:
        if options.run is not None:
            steps = [metrics for _, metrics in read_steps(options.run)]
            lengths, measured = Lengths.measured(steps), measured_seconds(steps)
        plan = make_plan(config, machine, workload.policy_actors(), frozen, lengths=lengths)
    except ValueError as error:  # of the run's metrics, or transformers' of a model that it does not know
        return _refused(error)
    show_plan(plan, config, wide_console(), len(DECKS[config.game.preset]), measured)
    try:
        plan.check(config)
    except ConfigError as error:
        return _refused(error)
    return 0


def _refused(error: ValueError) -> int:
    print(f"error: {error}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
