"""LoRA: vLLM serves the policy's adapters beside their base, and is told of new ones at run time.

The real vLLM: tests/end_to_end/test_team.py.
"""

from functools import partial
from itertools import pairwise

import pytest

from algo.run.memory_plan import other_servers
from algo.serving.launch import policy_launches, vllm_command
from algo.serving.policies import PolicyServers
from algo.serving.server_group import ServerGroup, ServingError
from tests.support.algo.fake_vllm import SERVE
from tests.support.waiting import until

LORA = {"lora_rank": 6, "lora_alpha": 12}


@pytest.fixture
def configure(configure):
    return partial(configure, model=LORA)


@pytest.fixture
def fake(vllms):
    vllms[0].models = [{"id": "policy-base"}]
    return vllms[0]


def test_vllm_is_started_for_adapters_of_that_rank(configure, tmp_path):
    past = tmp_path / "past"
    past.mkdir()
    (past / "adapter_config.json").touch()
    config = configure(frozen={"earlier": {"path": past}, "other": {"path": tmp_path}})
    command = vllm_command(config, policy_launches(config)[0])
    options = dict(pairwise(command))
    assert options["--served-model-name"] == "policy-base" and "--enable-lora" in command
    assert (options["--max-lora-rank"], options["--max-loras"]) == ("8", "2")
    assert command[command.index("--lora-modules") + 1 :] == [f"earlier={past}"]


async def test_an_attached_vllm_must_have_the_adapters_of_frozen_policies(configure, fake, tmp_path):
    (tmp_path / "adapter_config.json").touch()
    config = configure(mode="attach", urls=(fake.url,), frozen={"earlier": {"path": tmp_path}})
    with pytest.raises(ServingError, match=f"--lora-modules earlier={tmp_path}"):
        await ServerGroup.open(config)
    fake.models.append({"id": "earlier"})
    async with await ServerGroup.open(config):
        pass


TEAM = {"wolves": {"side": "wolf"}, "villagers": {"side": "good"}}


@pytest.mark.parametrize(
    ("policies", "pool", "room"), [({}, None, "1"), ({}, 5, "6"), (TEAM, None, "2"), (TEAM, 5, "12")]
)
def test_vllm_has_adapter_slots_for_every_trained_policy_and_its_past_selves(configure, policies, pool, room):
    league = {"league": {"every_steps": 1, "size": pool}, "game": {"opponent": "past"}} if pool else {}
    config = configure(policies=policies, **league)
    assert dict(pairwise(vllm_command(config, policy_launches(config)[0])))["--max-loras"] == room
    assert other_servers(config, []) == []


async def test_all_policies_that_learn_get_their_adapters_within_one_pause(configure, fake, tmp_path):
    # Not even where games go on meanwhile do replies go on with other adapters than they began with.
    config = configure(mode="attach", urls=(fake.url,), policies=TEAM, rollout={"max_policy_lag": 1})
    load, unload = "/v1/load_lora_adapter", "/v1/unload_lora_adapter"
    serving = await PolicyServers.open(config)
    for version in (0, 1):
        fake.calls.clear()
        await serving.push({name: tmp_path / f"{name}-{version}" for name in TEAM}, version)
        # In the second push the old ones are forgotten first, so that there is room.
        changes = [unload, load, unload, load] if version == 0 else [unload, unload, unload, load, unload, load]
        assert fake.calls == ["/pause?mode=wait", *changes, *SERVE]
        assert fake.bodies[load] == {
            "lora_name": "villagers",
            "lora_path": str(tmp_path / f"villagers-{version}"),
        }
    # Past selves come and go beside them.
    fake.calls.clear()
    await serving.serve_past_selves({"past-000001": tmp_path / "past-000001"}, [])
    assert fake.bodies[load]["lora_name"] == "past-000001-villagers"
    assert fake.bodies[load]["lora_path"] == str(tmp_path / "past-000001" / "villagers")
    await serving.serve_past_selves({}, [])
    assert fake.calls == [unload, load] * 2 + [unload] * 2
    shown = serving.past({"past-000001": 1.0}, [])
    assert [(one.name, one.model, one.player, one.side) for one in shown] == [
        (f"past-000001-{name}", f"past-000001-{name}", "past-000001", rule["side"]) for name, rule in TEAM.items()
    ]
    assert serving.model == "wolves"  # for runners that know a single policy
    assert [(one.endpoints, one.model) for one in serving.learners()] == [(serving.endpoints, name) for name in TEAM]
    assert await serving.scores([7, 8, 9], "wolves") == [[-8.0, -9.0]]
    assert fake.bodies["/v1/completions"]["model"] == "wolves"
    assert await serving.score([7, 8, 9]) == [-8.0, -9.0] * 2
    assert fake.bodies["/v1/completions"]["model"] == "villagers"
    await serving.stop()


async def test_a_server_that_comes_back_has_the_past_selves_before_it_is_in_service(
    configure, fake, tmp_path, watched_closely
):
    config = configure(mode="attach", urls=(fake.url,))
    async with await ServerGroup.open(config) as serving:
        await serving.push_weights(tmp_path, 0)
        await serving.serve_adapters({"past-000000": tmp_path / "past-000000"})
        await fake.stop()
        with pytest.raises(ServingError):  # the only one: nobody is left
            await until(serving.check_alive)
        fake.calls.clear()
        await fake.start()
        await until(lambda: serving.servers)
        loads = [call for call in fake.calls if call in ("/v1/load_lora_adapter", "/update_weight_version")]
        assert loads == ["/v1/load_lora_adapter", "/v1/load_lora_adapter", "/update_weight_version"]
