"""What the end-to-end tests share: started once a session."""

import asyncio

import pytest

from tests.support.agents.tool_model import build_tool_model
from tests.support.algo.machine import Machine
from tests.support.real_vllm import WITH_TOOLS, of_length


@pytest.fixture(scope="session")
def machine(tmp_path_factory, tiny_model, serve_vllm):
    """A hub, a runner and vLLMs; tests that take it belong to the xdist_group ``machine``."""
    machine = Machine(tmp_path_factory.mktemp("machine"), tiny_model, serve_vllm)
    try:
        asyncio.run(machine.start())
        yield machine
    finally:
        machine.stop()


@pytest.fixture(scope="session")
def tool_model(tmp_path_factory):
    """Folder of a random model that calls tools."""
    return build_tool_model(tmp_path_factory.mktemp("models") / "tools")


@pytest.fixture(scope="session")
def tool_vllm(tool_model, serve_vllm):
    """URL of a vLLM with it, without path, whose weights nobody changes."""
    return serve_vllm(tool_model, *of_length(2048, 60), *WITH_TOOLS)
