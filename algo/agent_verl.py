"""``python -m algo.agent_verl``: train what speaks to an OpenAI-compatible address, by reinforcement learning.

``algo.loop.train`` is the loop, ``algo.agents.workload`` what agents give it. From Python:
``algo.agents.algorithm.AgentVerl``.
"""

import argparse
import logging
import sys

from algo.agents.data import read_data
from algo.loop.training_command import parse_training_arguments, run_training
from configs.agents import AgentConfig
from configs.command_line import read_configuration
from configs.model_folder import check_model_folders
from configs.section import ConfigError

logger = logging.getLogger("algo.agent_verl")


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line; exits with a usage message when it cannot be used."""
    return parse_training_arguments(
        "algo.agent_verl",
        "Train an agent's model: tasks through the hub, updates through verl, serving by vLLM. Start runners with "
        "`python -m runners.agents`.",
        arguments,
        one="task",
        default=None,
    )


def check(config: AgentConfig) -> None:
    """Raise ConfigError for models and tasks that are not there."""
    path, makes = config.model.path, config.local.model
    if makes is not None and not path.exists():
        command = makes.replace("{python}", "python").replace("{model}", str(path))
        raise ConfigError(f"model.path {path} does not exist: make it with `{command}`, or name a model's folder")
    check_model_folders(config)
    read_data(config)


def main() -> int:
    """Entry point; the exit status is 0 only for a run that made all its steps."""
    options = parse_arguments()
    config = read_configuration(options, AgentConfig, check)
    if isinstance(config, int):
        return config
    from algo.agents.workload import Agents  # takes seconds

    return run_training(config, options, Agents, logger)


if __name__ == "__main__":
    sys.exit(main())
