"""The agent: one dialogue of tau2-bench, played and judged by tau2 itself."""

import json
import logging
import os
from typing import Any

from agentlightning import LLM, rollout
from openai import APIConnectionError, APIStatusError, InternalServerError
from tau2.evaluator.evaluator import EvaluationType
from tau2.registry import registry
from tau2.run import run_task

USER_MODEL, USER_ENDPOINT, USER_KEY = "TAU2_USER_MODEL", "TAU2_USER_ENDPOINT", "TAU2_USER_KEY"
"""Environment variables that put a model behind any OpenAI-compatible API in the user's place; of the last one the
name says it: nobody but that API is sent the key."""

FROZEN_USER = "user"
"""Name of the frozen policy that else is the user (section ``frozen`` of the configuration)."""

logging.getLogger("LiteLLM").setLevel(logging.ERROR)


@rollout
def tau2_agent(task: dict[str, Any], llm: LLM) -> float:
    """Play the dialogue that ``domain`` and ``task_id`` name; the reward is tau2's own.

    max_steps: messages after which the dialogue counts as failed; 30 where the task does not say.
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
    except (APIConnectionError, InternalServerError) as error:
        raise ConnectionError(str(error)) from error  # the user's API is away: not the agent's failure
    except (json.JSONDecodeError, APIStatusError):
        return 0.0  # a tool call that is no JSON, a dialogue beyond the context
    return played.reward_info.reward


def _user_at(llm: LLM) -> dict[str, str]:
    if USER_ENDPOINT in os.environ:
        return {"api_base": os.environ[USER_ENDPOINT], "api_key": os.environ.get(USER_KEY, "none")}
    return {"api_base": llm.endpoint, "api_key": llm.api_key}
