"""The three examples before a real vLLM, with one tiny model that has imitated the lessons of all.

Every conversation of theirs is one sequence, token for token, with the log-probs that a plain forward pass gives; each
agent calls its tools, and tau2's dialogues come to their end, with a user that is a frozen policy.
"""

import asyncio
import json
import random
import subprocess
import sys

import pytest

from algo.machine.ports import free_port
from algo.tiny_agent import build_tiny_agent, read_lessons
from runners.agents.agent_play import AgentFailed, Session
from runners.agents.examples.math_agent import tasks as math_tasks
from runners.agents.examples.service_agent import tasks as service_tasks
from runners.agents.examples.service_agent.reward import reward as service_reward
from runners.agents.gateway.address import Gateway
from runners.agents.gateway.chat_server import ChatServer
from runners.agents.lit import LitPlayer, load_agent
from runners.agents.service import ServicePlayer
from runners.policy.connections import Connections
from tests.support.agents.fakes_agents import attempt_of, resources_of, rollout_of
from tests.support.real_vllm import WITH_TOOLS, of_length, real_vllm
from tests.support.small_models import calls_that_go_on, load_model
from tests.support.tasks import HERE

pytestmark = pytest.mark.timeout(900)

LIMITS = {"context_tokens": 4096, "reply_tokens": 80}
STEPS = 160  # enough to call tools as they want to be called; what is right is learned from more lessons of one kind
EXAMPLES = "runners.agents.examples"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    lessons = []
    for name in ("math_agent", "service_agent", "tau2_agent"):
        path = folder / f"{name}.jsonl"
        subprocess.run([sys.executable, "-m", f"{EXAMPLES}.{name}.tasks", "--lessons", path], check=True)
        lessons += read_lessons(path)
    return build_tiny_agent(folder / "model", lessons, steps=STEPS)


@pytest.fixture(scope="module")
def vllm(model, tmp_path_factory):
    """Base URL of a real vLLM, ending in /v1."""
    log = tmp_path_factory.mktemp("vllm") / "log"
    with real_vllm(log, f"model.path={model}", *of_length(**LIMITS), *WITH_TOOLS) as url:
        yield f"{url}/v1"


@pytest.fixture(scope="module")
def service():
    port = free_port()
    process = subprocess.Popen([sys.executable, "-m", f"{EXAMPLES}.service_agent", "--port", str(port)])
    yield f"http://127.0.0.1:{port}/chat"
    process.terminate()
    process.wait()


class Played:
    """Rewards by task, and the calls of the trained policy's conversations."""

    def __init__(self):
        self.rewards = []
        self.failures = []
        self.conversations = []


async def played(vllm, player, tasks):
    """Play the tasks all at once. The user of tau2 is the same server's model, under the name of a frozen policy."""
    result, gateway, servers = Played(), Gateway(), Connections(ChatServer.of, HERE)
    resources = resources_of(vllm, policies=({"name": "user", "endpoints": (vllm,), "model": "policy"},))
    await gateway.start()

    async def play(number, task):
        spans = []
        attempt = attempt_of(servers, spans, number, resources, limits=LIMITS, input=task, max_calls=12)
        async with gateway.serving(attempt) as address:
            rollout = rollout_of(number).model_copy(update={"input": task})
            try:
                (reward,) = (await player(Session(attempt.task, rollout, resources, address))).values()
                result.rewards.append(reward)
            except AgentFailed as error:
                result.failures.append(str(error))
        assert attempt.fatal_error is None
        for name in {span.name for span in spans}:
            result.conversations.append([span for span in spans if span.name == name])

    try:
        await asyncio.gather(*(play(number, task) for number, task in enumerate(tasks)))
    finally:
        await player.close()
        await gateway.close()
        await servers.close()
    return result


def pairs_of(result, model):
    """How many calls went on from another; each conversation is checked to be one sequence."""
    plain = load_model(model)
    return sum(calls_that_go_on(conversation, plain) for conversation in result.conversations)


async def test_the_math_agent(vllm, model):
    player = LitPlayer(load_agent(f"{EXAMPLES}.math_agent:agent"))
    result = await played(vllm, player, math_tasks.tasks()[0][:24])
    assert not result.failures and len(result.rewards) == 24
    assert pairs_of(result, model) > 4
    assert any(call.facts.get("tool_calls") for calls in result.conversations for call in calls)


async def test_the_service_agent(vllm, model, service):
    player = ServicePlayer(service, service_reward, retry_seconds=300)
    result = await played(vllm, player, service_tasks.tasks()[0][:24])
    assert not result.failures and len(result.rewards) == 24
    assert pairs_of(result, model) > 4
    assert any(call.facts.get("tool_calls") for calls in result.conversations for call in calls)


async def test_the_tau2_agent(vllm, model):
    """Whole dialogues: a frozen user asks, the agent uses tools, tau2 looks at the final state."""
    tasks = [json.loads(line) for line in (math_tasks.HERE.parent / "tau2_agent/train.jsonl").read_text().splitlines()]
    player = LitPlayer(load_agent(f"{EXAMPLES}.tau2_agent:agent"))
    result = await played(vllm, player, random.Random(1).choices(tasks, k=16))
    assert 0 < sum(result.rewards) < len(result.rewards) >= 12
    assert pairs_of(result, model) > 20
    trained = [call for calls in result.conversations for call in calls if call.trainable]
    users = [call for calls in result.conversations for call in calls if call.policy == "user"]
    assert any(call.facts.get("tool_calls") for call in trained)
    assert users and not any(call.trainable for call in users)
    assert any("###STOP###" in call.reply for call in users)
