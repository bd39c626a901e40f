"""``python -m algo.agent_verl``: train an agent with an OpenAI-compatible client by reinforcement learning.

The loop is ``algo.loop.train``, the workload ``algo.agents.workload``. In Python: ``algo.agents.algorithm.AgentVerl``.
"""

import argparse
import logging

from algo.agents.data import read_data
from algo.loop.training_command import parse_training_arguments, run_training
from configs.agents import AgentConfig
from configs.command_line import read_configuration
from configs.model_folder import check_model_folders
from configs.section import ConfigError
from store.program import run_program

logger = logging.getLogger("algo.agent_verl")


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line; exits with a usage message for an invalid one."""
    return parse_training_arguments(
        "algo.agent_verl",
        "Train an agent's model: tasks through the hub, updates through verl, serving by vLLM. Start runners with "
        "`python -m runners.agents`.",
        arguments,
        one="task",
        default=None,
    )


def check(config: AgentConfig) -> None:
    """Raise ConfigError for missing models and tasks."""
    path, makes = config.model.path, config.local.model
    if makes is not None and not path.exists():
        command = makes.replace("{python}", "python").replace("{model}", str(path))
        raise ConfigError(f"model.path {path} does not exist: create it with `{command}`, or name a model's folder")
    check_model_folders(config)
    read_data(config)


def main() -> int:
    """Entry point; the exit status is 0 only after all steps."""
    options = parse_arguments()
    config = read_configuration(options, AgentConfig, check)
    from algo.agents.workload import Agents  # takes seconds

    return run_training(config, options, Agents, logger)


if __name__ == "__main__":
    run_program(main)
