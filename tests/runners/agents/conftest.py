"""A gateway before a fake of vLLM."""

import pytest

from runners.agents.gateway.address import Gateway
from runners.agents.gateway.chat_server import ChatServer
from runners.policy.connections import Connections
from tests.support.agents.fakes_agents import FakeChatVllm, World, client_of
from tests.support.tasks import HERE


@pytest.fixture
async def world(tiny_tokenizer):
    gateway, servers = Gateway(), Connections(ChatServer.of, HERE, retry_seconds=0)
    async with FakeChatVllm(tiny_tokenizer, lambda prompt: "fine") as vllm:
        await gateway.start()
        yield World(vllm, gateway, servers)
        await gateway.close()
        await servers.close()


@pytest.fixture
def attempt(world):
    return world.attempt()


@pytest.fixture
async def openai(world, attempt):
    """A client of the attempt."""
    async with world.gateway.serving(attempt) as address, client_of(address) as client:
        yield client
