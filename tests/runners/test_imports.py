"""What a runner imports, as processes of their own do: before its first game, and once it has played one."""

import asyncio
import sys

from tests.support.hub.asking import enqueue_tasks
from tests.support.tasks import game_task

NEVER = {"agentlightning", "litellm", "torch", "transformers", "verl", "vllm", "pandas", "fastapi", "algo"}
"""Nor openai, which comes with the first player behind an API."""

OF_AGENTSCOPE = {"agentscope", "sqlalchemy", "ray", "mcp", "redis", "numpy"}
"""AgentScope imports these, Ray where it is installed: with the first game, and not before."""


async def imported(*command):
    """Top-level packages that a process has imported by the time it ends well."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-X", "importtime", "-m", *command), stderr=asyncio.subprocess.PIPE
    )
    _, said = await process.communicate()
    assert process.returncode == 0, said[-2000:]
    lines = [line for line in said.decode().splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip().partition(".")[0] for line in lines}


async def test_a_runner_of_games_imports_what_it_plays_with_and_not_before(hub, client, policy):
    command = ("runners.werewolf", "--store", hub.url)
    waiting = await imported(*command, "--idle-exit", "0")
    assert {"runners", "store", "aiohttp", "pydantic"} <= waiting
    assert waiting & {*NEVER, *OF_AGENTSCOPE, "openai", "tokenizers"} == {"numpy"}

    await enqueue_tasks(client, policy, [game_task(seed=2, seating={"wolf": "policy", "good": "scripted"})])
    playing = await imported(*command, "--max-games", "1")
    assert [rollout.status for rollout in await client.query_rollouts()] == ["succeeded"]
    assert {"agentscope", "tokenizers", "jinja2"} <= playing
    assert playing & {*NEVER, "openai"} == set()


async def test_a_runner_of_an_agent_that_is_a_service_imports_no_framework_of_agents(hub):
    service = ("--service", "http://127.0.0.1:1/task", "--idle-exit", "0")
    found = await imported("runners.agents", "--store", hub.url, *service)
    assert "tokenizers" in found and found & {*NEVER, *OF_AGENTSCOPE, "openai"} == set()
