"""``python -m algo.plan``: check whether a run fits the memory of its GPUs and machine, without starting it."""

import argparse

from configs.command_line import configured_parser, exit_on, read_configuration
from configs.loading import schema_of
from configs.model_folder import read_architecture
from configs.roles_and_decks import DECKS
from configs.schema import Config
from configs.section import ConfigError
from configs.werewolf import WerewolfConfig
from store.program import number, run_program

H100_GIB = 79.2
"""Memory of an H100 of 80 GB by CUDA."""


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = configured_parser(
        "algo.plan",
        "Estimate a run's memory on its GPUs and its machine, part by part, from the model's config.json. Starts "
        "nothing; the exit status is 2 for a run that does not fit.",
        example="model.lora_rank=32",
    )
    parser.add_argument(
        "--gpu-gib",
        type=number(float, 0.1),
        metavar="GIB",
        help=f"memory of each GPU (default: this machine's, else {H100_GIB})",
    )
    parser.add_argument(
        "--host-gib",
        type=number(float, 0.1),
        metavar="GIB",
        help="memory of the machine (default: this one's; not checked for a run on GPUs that this machine lacks)",
    )
    return parser.parse_args(arguments)


def check_architecture(config: Config) -> None:
    """Raise ConfigError unless the model's folder has a config.json."""
    try:
        read_architecture(config.model.path)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"model.path {config.model.path} has no valid config.json ({error}): set model.path to a Hugging Face "
            f"model folder; a plan only needs its config.json"
        ) from error


def main(arguments: list[str] | None = None) -> int:
    """The exit status is 0 for a run that fits, and 2 for one that does not."""
    options = parse_arguments(arguments)
    with exit_on(ConfigError):
        schema = schema_of(options.config)
    config = read_configuration(options, schema, check_architecture)
    # These take many seconds to import.
    import torch

    from algo.evaluation.play import evaluate_in_training
    from algo.run.memory_plan import make_plan, other_servers
    from algo.werewolf.workload import Werewolf

    gpu_gib = options.gpu_gib or (None if torch.cuda.is_available() else H100_GIB)
    with exit_on(ValueError):  # also transformers' error for an unknown model
        names, actors = config.frozen.keys(), 1  # any agent may call any of them
        if isinstance(config, WerewolfConfig):
            names, actors = Werewolf(config, evaluate_in_training).frozen_names(), len(DECKS[config.game.preset])
        plan = make_plan(config, other_servers(config, names), gpu_gib=gpu_gib, host_gib=options.host_gib)
        print(plan.table(config, actors))
        plan.check(config)
    return 0


if __name__ == "__main__":
    run_program(main)
