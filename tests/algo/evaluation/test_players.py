"""Players that are served for games without training."""

from types import SimpleNamespace

import pytest

from algo.evaluation.players import serve_players
from algo.run.checkpoints import RunState
from algo.serving import launch as vllm_launch
from algo.serving.launch import vllm_command
from algo.serving.preconditions import ServingDied
from store.schema import TRAINED_POLICY
from tests.support.algo.fake_vllm import port_of
from tests.support.waiting import until

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


async def test_games_end_when_an_opponent_has_no_server_left(hub, configure, fakes, watched_closely, tiny_model):
    config = configure(max_restarts=0, frozen={"older": {"path": tiny_model}}, store={"url": hub.url})
    opened = SimpleNamespace(config=config, state=RunState(run_id="run-1"), resumption=None)
    async with serve_players(opened, ["older", "scripted"], None) as served:
        await served.check_alive()
        fakes.kill(port_of(served.resources.policies[0].endpoints[0]))
        with pytest.raises(ServingDied, match="exited with code 137"):
            await until(served.check_alive)
