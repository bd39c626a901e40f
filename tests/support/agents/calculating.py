"""An importable agent for tests: it calls ``tool_model``'s model until a reply has no tool call."""

from agentlightning import rollout
from openai import AsyncOpenAI

from tests.support.agents.tool_model import TOOL

CALLS = 3


@rollout
async def agent(task, llm):
    """Rewards ``answered`` and ``short``; too many calls are its own failure."""
    async with AsyncOpenAI(base_url=llm.endpoint, api_key=llm.api_key) as client:
        messages = [{"role": "user", "content": task["question"]}]
        for _ in range(CALLS):
            answer = await client.chat.completions.create(model=llm.model, messages=messages, tools=[TOOL])
            message = answer.choices[0].message
            if not message.tool_calls:
                said = message.content or ""
                return {"answered": float("###" in said), "short": 1.0 / (1 + len(said))}
            messages.append(message)
            messages += [{"role": "tool", "tool_call_id": call.id, "content": "3"} for call in message.tool_calls]
    raise RuntimeError("too many calls")
