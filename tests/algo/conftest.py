"""What the tests of several rooms of algo are given."""

import pytest

from algo.serving import launch as vllm_launch
from tests.support.algo.fake_vllm import StartedFakes


@pytest.fixture
def fakes(tmp_path, monkeypatch):
    """Has fakes started in vLLM's place."""
    fakes = StartedFakes(tmp_path)
    monkeypatch.setattr(vllm_launch, "vllm_command", fakes.command)
    return fakes
