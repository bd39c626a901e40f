"""The agent: one dialogue of tau2-bench, run and graded by tau2."""

import logging
import os
from json import JSONDecodeError
from typing import Any

from agentlightning import LLM, rollout
from litellm import ContextWindowExceededError
from openai import APIError
from pydantic import ValidationError
from tau2.evaluator.evaluator import EvaluationType
from tau2.registry import registry
from tau2.run import run_task

USER_MODEL, USER_ENDPOINT, USER_KEY = "TAU2_USER_MODEL", "TAU2_USER_ENDPOINT", "TAU2_USER_KEY"
"""Environment variables of a model behind an OpenAI-compatible API that simulates the user; only that API receives the
key."""

FROZEN_USER = "user"
"""Name of the frozen policy that simulates the user otherwise (section ``frozen`` of the configuration)."""

_TOO_MANY_CALLS = "this attempt has reached its limit"
"""In the gateway's error, whose code litellm drops."""

logging.getLogger("LiteLLM").setLevel(logging.ERROR)


@rollout
def tau2_agent(task: dict[str, Any], llm: LLM) -> float:
    """Run the dialogue of ``domain`` and ``task_id``; returns tau2's reward.

    The task's max_steps (default 30): messages after which the dialogue counts as failed.
    """
    (found,) = (one for one in registry.get_tasks_loader(task["domain"])() if one.id == task["task_id"])
    options = {"num_retries": 0, "temperature": llm.sampling_parameters["temperature"]}
    try:
        played = run_task(
            domain=task["domain"],
            task=found,
            agent="llm_agent",
            user="user_simulator",
            llm_agent=f"openai/{llm.model}",
            llm_args_agent={**options, "api_base": llm.endpoint, "api_key": llm.api_key},
            llm_user=f"openai/{os.environ.get(USER_MODEL, FROZEN_USER)}",
            llm_args_user={**options, **_user_at(llm)},
            max_steps=task.get("max_steps", 30),
            evaluation_type=EvaluationType.ALL,
        )
    except (JSONDecodeError, ValidationError, ContextWindowExceededError):
        return 0.0  # an invalid tool call, or a dialogue longer than the context
    except APIError as error:
        if _TOO_MANY_CALLS in str(error):
            return 0.0
        raise ConnectionError(str(error)) from error  # trouble of the user's API: not the agent's failure
    return played.reward_info.reward


def _user_at(llm: LLM) -> dict[str, str]:
    if USER_ENDPOINT in os.environ:
        return {"api_base": os.environ[USER_ENDPOINT], "api_key": os.environ.get(USER_KEY, "none")}
    return {"api_base": llm.endpoint, "api_key": llm.api_key}
