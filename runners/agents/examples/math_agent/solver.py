"""The agent. Only its reward comes from this project."""

import asyncio
import sys
from pathlib import Path
from typing import Any

from agent_framework import Agent, Content, MCPStdioTool
from agent_framework.exceptions import ToolException, ToolExecutionException
from agent_framework.openai import OpenAIChatCompletionClient
from agentlightning import LLM, rollout
from mcp.shared.exceptions import McpError
from mcp.types import CONNECTION_CLOSED

from runners.agents.examples.math_agent.grading import is_right

INSTRUCTIONS = "Solve the math problem with the calculator. Output the answer after ###"
CALCULATOR = Path(sys.executable).with_name("mcp-server-calculator")


class Calculator(MCPStdioTool):
    """The calculator's process, one for all tasks of a runner, since its start takes a second.

    If it dies, it is restarted and the call retried: otherwise Agent Framework would report an error to the model,
    which would be trained on it.
    """

    def __init__(self) -> None:
        super().__init__(name="calculator", command=str(CALCULATOR), load_prompts=False)
        self._starting = asyncio.Lock()

    async def ready(self) -> "Calculator":
        """The calculator, started. Raises ConnectionError if it cannot start; the task is retried then."""
        async with self._starting:
            if not self.is_connected:
                try:
                    await self.connect()
                except ToolException as error:
                    raise ConnectionError(f"no calculator: {error}") from error
        return self

    async def call_tool(self, tool_name: str, **kwargs: Any) -> str | list[Content]:
        """Calculate. Raises ToolExecutionException, which is reported to the model, for an invalid expression."""
        session = self.session
        try:
            return await super().call_tool(tool_name, **kwargs)
        except ToolExecutionException as error:
            if not (isinstance(error.__cause__, McpError) and error.__cause__.error.code == CONNECTION_CLOSED):
                raise
        async with self._starting:
            if self.session is session:  # otherwise another task has restarted it
                await self.connect(reset=True)
        return await super().call_tool(tool_name, **kwargs)


_calculators: dict[asyncio.AbstractEventLoop, Calculator] = {}


@rollout
async def math_agent(task: dict[str, Any], llm: LLM) -> float:
    """Answer ``question``; the reward is 1 where the answer is ``result``, else 0."""
    calculator = await _calculators.setdefault(asyncio.get_running_loop(), Calculator()).ready()
    agent = Agent(
        client=OpenAIChatCompletionClient(model=llm.model, api_key=llm.api_key, base_url=llm.endpoint),
        name="MathAgent",
        instructions=INSTRUCTIONS,
        default_options={"temperature": llm.sampling_parameters["temperature"]},
    )
    answer = await agent.run(task["question"], tools=calculator)
    await calculator.ready()  # otherwise the agent answered without it
    return float(is_right(answer.text, task["result"]))
