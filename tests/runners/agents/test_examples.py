"""The examples as they are: Agent Framework with a real MCP server, tau2, a service; before a fake of vLLM."""

import asyncio
import fcntl
import json
import os
import subprocess
import sys
import termios
import time
from pathlib import Path

import psutil
import pytest
from aiohttp import web

from algo.machine.ports import free_port
from runners.agents.agent_play import AgentUnavailable, Session
from runners.agents.examples.math_agent import tasks as math_tasks
from runners.agents.examples.math_agent.grading import is_right
from runners.agents.examples.service_agent import tasks as service_tasks
from runners.agents.examples.service_agent.reward import reward as service_reward
from runners.agents.lit import LitPlayer, load_agent
from runners.agents.service import ServicePlayer
from tests.support.agents.fakes_agents import resources_of, rollout_of
from tests.support.waiting import until


async def rewards_of(world, player, task, **changes):
    """What a player's agent earns for a task's input. changes: of the task."""
    user = {"name": "user", "endpoints": (world.endpoint,), "model": "policy"}
    attempt = world.attempt(input=task, resources=resources_of(world.endpoint, policies=(user,)), **changes)
    async with world.gateway.serving(attempt) as address:
        rollout = rollout_of(world.attempts).model_copy(update={"input": task})
        return await player(Session(attempt.task, rollout, attempt.resources, address))


def call(name, arguments):
    return f'<tool_call>\n{{"name": "{name}", "arguments": {json.dumps(arguments)}}}\n</tool_call>'


def calculators():
    children = psutil.Process().children(recursive=True)
    return [child for child in children if "mcp-server-calculator" in str(child.cmdline())]


def no_calculators():
    for process in calculators():
        process.kill()
        process.wait()


@pytest.fixture
async def math_player():
    no_calculators()  # of other files of tests
    player = LitPlayer(load_agent("runners.agents.examples.math_agent:agent"))
    yield player
    await player.close()
    no_calculators()


def solving(prompt):
    """A model that calculates, and says what came out."""
    if "<tool_response>" in prompt:
        said = json.loads(prompt.rpartition("<tool_response>\n")[2].partition("\n")[0])
        return f"The answer is\n### {said['result']}"
    return call("calculate", {"expression": "(1+2)*5"})


SUM = {"question": "What is 1 plus 2, times 5?", "result": "15"}


async def test_the_math_agent_calculates_with_a_real_mcp_server(world, math_player):
    world.vllm.answer = solving
    assert await rewards_of(world, math_player, SUM) == {"reward": 1.0}
    assert await rewards_of(world, math_player, SUM | {"result": "11"}) == {"reward": 0.0}
    assert len(calculators()) == 1  # for both
    assert [(span.segment, span.context_tokens > 0) for span in world.spans] == [(0, False), (0, True)] * 2
    first = world.vllm.tokenizer.decode(world.vllm.exchanges[0][0]["prompt"])
    assert json.dumps(math_tasks.TOOL) in first and math_tasks.INSTRUCTIONS in first  # as in the lessons


async def test_a_calculator_that_dies_while_it_calculates_is_asked_again(world, math_player):
    stopped = []

    def stopping(prompt):
        if not stopped:
            stopped.extend(calculators())
            for process in stopped:
                process.suspend()
                while not _is_suspended(process):
                    time.sleep(0.001)  # a thread that has not stopped yet still reads what it is asked
        return solving(prompt)

    world.vllm.answer = stopping
    acting = asyncio.create_task(rewards_of(world, math_player, SUM))
    async with asyncio.timeout(60):
        await until(lambda: stopped and _read_by_nobody(stopped[0]))  # what was asked lies in its pipe
    stopped[0].kill()
    assert await acting == {"reward": 1.0}
    assert not any("Function failed" in world.vllm.tokenizer.decode(span.prompt_ids) for span in world.spans)


def _is_suspended(process):
    """Whether every thread of a process has stopped."""
    threads = Path(f"/proc/{process.pid}/task").glob("*/stat")
    return all(thread.read_text().rpartition(")")[2].split()[0] == "T" for thread in threads)


def _read_by_nobody(process):
    """Whether there are bytes in a process's standard input."""
    with open(f"/proc/{process.pid}/fd/0", "rb") as pipe:
        return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder) > 0


async def test_a_calculator_that_cannot_be_started_is_away_and_not_the_agents_failure(world, math_player, monkeypatch):
    monkeypatch.setattr("runners.agents.examples.math_agent.solver.CALCULATOR", Path("no-such-calculator"))
    with pytest.raises(AgentUnavailable, match="no calculator"):
        await rewards_of(world, math_player, SUM)


@pytest.fixture
async def tau2_player():
    player = LitPlayer(load_agent("runners.agents.examples.tau2_agent:agent"))
    yield player
    await player.close()


def serving_customers(action):
    """A model that is both: a customer who wants task_1 completed, and an agent that does the action for them."""

    def answer(prompt):
        if "# User Simulation Guidelines" in prompt:
            return "###STOP###" if "It is done." in prompt else "Please mark task_1 as completed."
        return "It is done." if "<tool_response>" in prompt else call(*action)

    return answer


UPDATE = {"domain": "mock", "task_id": "update_task_1"}


@pytest.mark.parametrize(("status", "earned"), [("completed", 1.0), ("pending", 0.0)])
async def test_a_dialogue_of_tau2_is_rewarded_for_the_state_that_it_leaves(world, tau2_player, status, earned):
    world.vllm.answer = serving_customers(("update_task_status", {"task_id": "task_1", "status": status}))
    assert await rewards_of(world, tau2_player, UPDATE) == {"reward": earned}
    agent = [span for span in world.spans if span.name == "agent"]
    user = [span for span in world.spans if span.name == "user"]
    assert [(span.segment, span.context_tokens > 0) for span in agent] == [(0, False), (0, True)]
    assert [span.reply for span in user] == ["Please mark task_1 as completed.", "###STOP###"]
    assert all(span.trainable for span in agent) and not any(span.trainable for span in user)


async def test_a_tool_call_that_cannot_be_read_and_too_many_calls_end_a_dialogue_of_tau2(world, tau2_player):
    broken = serving_customers(("update_task_status", {}))
    world.vllm.answer = lambda prompt: broken(prompt).replace("{}", "{,}")
    for most in (1000, 1):
        assert await rewards_of(world, tau2_player, UPDATE, max_calls=most) == {"reward": 0.0}


NO_MONEY = {"message": "Insufficient Balance", "type": "unknown_error", "code": "invalid_request_error"}


@pytest.mark.parametrize(
    ("status", "error"), [(None, {}), *((status, {"message": "no"}) for status in (401, 429, 503)), (402, NO_MONEY)]
)
async def test_trouble_of_the_simulated_users_api_is_not_the_agents_failure(
    world, tau2_player, http_service, monkeypatch, status, error
):
    http_service.answer = lambda request: web.json_response({"error": error}, status=status)
    world.vllm.answer = serving_customers(("get_users", {}))
    monkeypatch.setenv("TAU2_USER_ENDPOINT", http_service.url if status else f"http://127.0.0.1:{free_port()}/v1")
    with pytest.raises(AgentUnavailable):
        await rewards_of(world, tau2_player, UPDATE)


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    """URL of the service on the OpenAI Agents SDK, which runs in an environment of its own."""
    program, folder, port = "runners.agents.examples.service_agent", tmp_path_factory.mktemp("service"), free_port()
    command = [sys.executable, "-m", program, "--environment", str(folder / "venv"), "--port", str(port)]
    subprocess.run([*command, "--only-install"], check=True)
    process = subprocess.Popen(command, env={**os.environ, "OPENAI_AGENTS_DISABLE_TRACING": "1"})
    yield f"http://127.0.0.1:{port}/chat"
    process.terminate()
    process.wait()


@pytest.fixture
async def service_player(service):
    player = ServicePlayer(service, service_reward)
    yield player
    await player.close()


STORY = {"question": "Ann has 3 apples and gets 4 more. How many apples?", "answer": "3 + 4 = 7\n#### 7"}


@pytest.mark.timeout(600)  # the environment may have to be downloaded
async def test_the_services_calls_are_captured_and_its_answer_rewarded(world, service_player):
    def solving(prompt):
        if "<tool_response>" in prompt:
            return "The answer is\n### " + prompt.rpartition("<tool_response>\n")[2].partition("\n")[0]
        return call("calculate", {"expression": "3 + 4"})

    world.vllm.answer = solving
    assert await rewards_of(world, service_player, STORY) == {"reward": 1.0}
    assert await rewards_of(world, service_player, STORY | {"answer": "#### 8"}) == {"reward": 0.0}
    assert [(span.segment, span.context_tokens > 0) for span in world.spans] == [(0, False), (0, True)] * 2
    first = world.vllm.tokenizer.decode(world.vllm.exchanges[0][0]["prompt"])
    assert json.dumps(service_tasks.TOOL) in first and service_tasks.INSTRUCTIONS in first  # as in the lessons

    world.vllm.answer = lambda prompt: call("calculate", {"expression": "1/0"})
    world.spans.clear()
    assert await rewards_of(world, service_player, STORY) == {"reward": 0.0}
    assert len(world.spans) == 4  # turns that the service allows


@pytest.mark.parametrize(
    ("said", "result", "right"),
    [
        ("The answer is\n### 15", "15", True),
        ("### 15.004", "15", True),
        ("### 15.02", "15", False),
        ("### 31/2", "15.5", True),
        ("### 50%", "0.5", True),
        ("15", "15", False),
        ("### __import__('os').getpid()", "15", False),
        ("### 9**9**9**9", "15", False),
        ("### 1/0", "15", False),
        ("### 15 ### 16", "15", False),
    ],
)
def test_answers_of_the_math_agent_are_compared_by_value(said, result, right):
    assert is_right(said, result) is right


@pytest.mark.parametrize(
    ("text", "earned"),
    [
        ("so\n### 7", 1.0),
        ("### 1,007", 0.0),
        ("7", 0.0),
        ("### 8 ### 7", 1.0),
        (None, 0.0),
    ],
)
def test_the_services_reward_is_that_of_gsm8k(text, earned):
    assert service_reward({"question": "?", "answer": "3 + 4 = 7\n#### 7"}, {"text": text}) == earned


@pytest.mark.parametrize("module", [math_tasks, service_tasks])
def test_tasks_in_the_files_follow_from_their_seed(module, capsys):
    """And no lesson is about one of them."""
    parts = [[json.loads(line) for line in (module.HERE / f"{name}.jsonl").open()] for name in ("train", "val")]
    assert tuple(parts) == module.tasks()
    asked = {row["question"] for part in parts for row in part}
    assert len(asked) == sum(map(len, parts))
    taught = [next(m["content"] for m in lesson["messages"] if m["role"] == "user") for lesson in module.lessons()]
    assert not asked & set(taught) and len(taught) == module.LESSONS
