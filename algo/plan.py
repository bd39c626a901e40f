"""``python -m algo.plan``: whether a run fits its machines, and about how long a step will take; starts nothing."""

import argparse
import sys

import torch
from rich.console import Console

from algo.loop.command_line import add_configuration_options
from algo.planning.machine import H100_GIB, this_machine
from algo.planning.plan import make_plan, show_plan
from algo.serving.frozen import share_out, with_own_server
from algo.training.verl_configs import check_model_folder
from algo.werewolf_verl import Werewolf
from configs.loading import load_config
from configs.opponents import DEALT
from configs.section import ConfigError


def main() -> int:
    """Entry point; the exit status is 0 for a run that fits, and 2 for one that does not."""
    parser = argparse.ArgumentParser(prog="python -m algo.plan", description=__doc__.partition(": ")[2])
    add_configuration_options(parser, example="model.lora_rank=32")
    parser.add_argument("--gpu-gib", type=float, help="memory of each GPU (default: of those here, else 79.2)")
    parser.add_argument("--host-gib", type=float, help="memory of the machine (default: of this one, if it has GPUs)")
    options = parser.parse_args()
    try:
        config = load_config(options.config, options.overrides)
        check_model_folder(config.model.path)
        workload = Werewolf(config)
        alone, _ = share_out(config, workload.frozen_names(), workload.evaluated_names())
        gpu_gib = options.gpu_gib or (None if torch.cuda.is_available() else H100_GIB)
        device, dtype = config.training.device, config.model.dtype
        machine = this_machine(device, dtype, gpu_gib=gpu_gib, host_gib=options.host_gib)
        plan = make_plan(config, machine, DEALT[config.game.preset][0], with_own_server(config, alone))
        show_plan(plan, config, Console())
        plan.check(config)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
