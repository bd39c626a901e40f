"""An agent that asks any OpenAI-compatible model one question, with the prompt that it is given.

``OPENAI_BASE_URL``, ``OPENAI_API_KEY`` and ``MODEL`` say which model; the runner hands it the task and the prompt.
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
    """1 if the wanted answer stands among the first few words, else 0."""
    prompt = prompt_template.format(question=task["question"])
    async with AsyncOpenAI() as client:
        completion = await client.chat.completions.create(
            model=os.environ["MODEL"], messages=[{"role": "user", "content": prompt}], max_tokens=12, temperature=0.7
        )
    reply = completion.choices[0].message.content or ""
    return float(task["answer"].lower() in reply.lower())
