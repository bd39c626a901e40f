"""An agent that sends one question to an OpenAI-compatible model, with the prompt of the runner.

``OPENAI_BASE_URL``, ``OPENAI_API_KEY`` and ``MODEL`` select the model.
"""

import os
from typing import TypedDict

from agentlightning import PromptTemplate, rollout
from openai import AsyncOpenAI


class Question(TypedDict):
    """One line of tasks.jsonl."""

    question: str
    answer: str


@rollout
async def simple_agent(task: Question, prompt_template: PromptTemplate) -> float:
    """1 if the reply contains the answer, else 0."""
    prompt = prompt_template.format(question=task["question"])
    async with AsyncOpenAI() as client:
        completion = await client.chat.completions.create(
            model=os.environ["MODEL"], messages=[{"role": "user", "content": prompt}], max_tokens=12, temperature=0.7
        )
    reply = completion.choices[0].message.content or ""
    return float(task["answer"].lower() in reply.lower())
