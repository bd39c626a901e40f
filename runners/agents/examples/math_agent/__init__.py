"""A math agent of Microsoft's Agent Framework with an MCP calculator, as in Agent Framework Lab's README."""

from typing import Any


def __getattr__(name: str) -> Any:
    # The framework takes seconds to import, and tasks and lessons do not need it.
    if name == "agent":
        from runners.agents.examples.math_agent.solver import math_agent

        return math_agent
    raise AttributeError(name)
