"""Players that are served for games without training."""

from types import SimpleNamespace

import pytest

from algo.evaluation.players import serve_players
from algo.run.checkpoints import RunState
from algo.serving import launch as vllm_launch
from algo.serving.launch import vllm_command
from store.schema import TRAINED_POLICY

TEAM = {"wolves": {"side": "wolf"}, "villagers": {"side": "good"}}


@pytest.mark.parametrize("policies", [{}, TEAM])
async def test_the_policy_of_a_run_with_adapters_is_served_by_the_name_that_runners_ask_for(
    hub, configure, fakes, monkeypatch, tiny_model, policies
):
    started = []

    def command(config, launch):
        started.append(vllm_command(config, launch))
        return fakes.command(config, launch)

    monkeypatch.setattr(vllm_launch, "vllm_command", command)
    config = configure(model={"lora_rank": 8}, store={"url": hub.url}, policies=policies)
    opened = SimpleNamespace(config=config, state=RunState(run_id="run-1"), resumption=None)
    async with serve_players(opened, [TRAINED_POLICY], tiny_model) as served:
        (options,) = started
        assert served.resources.model == options[options.index("--served-model-name") + 1]
