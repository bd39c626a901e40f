"""What the tests of several rooms of algo are given."""

from functools import partial

import pytest

from algo.serving import launch as vllm_launch
from tests.support.algo.fake_vllm import FakeVllm, StartedFakes, serving_config


@pytest.fixture
def configure(tmp_path, tiny_model):
    """Makes a configuration with settings of the section serving."""
    return partial(serving_config, tmp_path, tiny_model)


@pytest.fixture
def watched_closely(monkeypatch):
    """Has servers looked at, given up and taken back at once."""
    for name, seconds in (("_UNHEALTHY_SECONDS", 0.0), ("_CHECK_SECONDS", 0.02), ("_TAKE_BACK_SECONDS", 0.02)):
        monkeypatch.setattr(f"algo.serving.server_group.{name}", seconds)


@pytest.fixture
def fakes(tmp_path, monkeypatch):
    """Has fakes started in vLLM's place."""
    fakes = StartedFakes(tmp_path)
    monkeypatch.setattr(vllm_launch, "vllm_command", fakes.command)
    return fakes


@pytest.fixture
async def vllms():
    """Two fakes that run already."""
    async with FakeVllm() as one, FakeVllm() as other:
        yield one, other


@pytest.fixture
def attach(configure, vllms):
    """Makes a configuration that attaches to them, with more settings."""
    return partial(configure, mode="attach", urls=tuple(vllm.url for vllm in vllms))
