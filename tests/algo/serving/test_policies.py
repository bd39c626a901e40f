"""vLLM servers of their own: of policies that learn side by side, and of past selves with whole weights."""

import asyncio
import shutil
from itertools import chain

import pytest

from algo.serving.launch import pool_servers
from algo.serving.policies import PolicyServers, check_public, frozen_with_own_server
from configs.section import ConfigError
from tests.support.algo.fake_vllm import port_of
from tests.support.waiting import until


def test_public_addresses_are_needed_of_every_server_that_the_run_starts(configure, tmp_path):
    public = {"public_urls": ("http://proxy",)}
    own = {"old": {"path": tmp_path}, "there": {"url": "http://there"}}
    check_public(configure(frozen=own), ["old", "initial"])
    check_public(configure(frozen=own, **public), ["there"])
    with pytest.raises(ConfigError, match=r"frozen policies initial, old, .*frozen\.NAME\.url"):
        check_public(configure(frozen=own, **public), ["there", "old", "initial"])
    lora = configure(model={"lora_rank": 8}, **public)
    check_public(lora, frozen_with_own_server(lora, ["initial"]))  # the policy's servers have the base
    with pytest.raises(ConfigError, match="frozen policies initial"):  # as in an evaluation, which starts its own
        check_public(lora, ["initial"])
    with pytest.raises(ConfigError, match="servers of past selves"):
        config = configure(league={"every_steps": 1}, game={"opponent": "past"}, **public)
        check_public(config, [], pool_servers(config))


async def test_each_policy_has_its_servers_and_is_given_its_weights(
    configure, fakes, tiny_model, tmp_path, watched_closely
):
    config = configure(servers=2, policies={"wolves": {"side": "wolf"}, "villagers": {"side": "good"}})
    folders = {name: shutil.copytree(tiny_model, tmp_path / name) for name in config.learners}
    serving = await PolicyServers.open(config)
    try:
        at = {one.name: [port_of(endpoint) for endpoint in one.endpoints] for one in serving.learners()}
        first = config.serving.port
        assert at == {"wolves": [first, first + 1], "villagers": [first + 2, first + 3]}
        assert serving.endpoints == serving.learners()[0].endpoints
        assert [one.model for one in serving.learners()] == ["policy"] * 2 and serving.frozen() == []
        assert [(one.side, one.roles) for one in serving.learners()] == [("wolf", None), ("good", None)]
        await serving.push(folders, 4)
        for port in chain(*at.values()):
            assert fakes.notes(port)[-1] == "/resume" and "/update_weight_version 4" in fakes.notes(port)
        assert not await serving.check_alive()
        fakes.kill(at["villagers"][0])
        await until(serving.check_alive)
        assert [len(one.endpoints) for one in serving.learners()] == [2, 1]
        with pytest.raises(ValueError, match="safetensors"):
            await serving.push({name: tmp_path / "nothing" for name in config.learners}, 5)
    finally:
        await serving.stop()
    assert all(fakes.ended(port) for port in chain(*at.values()))
    assert asyncio.all_tasks() == {asyncio.current_task()}  # though one was about to come back
    logs = {log.name for log in config.run_dir.glob("*.log")}
    assert logs == {"vllm-wolves.log", "vllm-wolves-2.log", "vllm-villagers.log", "vllm-villagers-2.log"}


def reloads(fakes, policy):
    """Versions that the server of a published policy was given, in order."""
    port = port_of(policy.endpoints[0])
    notes = [note.split() for note in fakes.notes(port)]
    return [int(note[1]) for note in notes if note[0] == "/update_weight_version"], port


async def test_only_servers_whose_past_self_changes_are_given_weights(
    configure, fakes, tiny_model, tmp_path, watched_closely
):
    config = configure(league={"every_steps": 1, "servers": 2}, game={"opponent": "past"})
    folders = {0: tiny_model}
    for version in (1, 2):
        folders[version] = shutil.copytree(tiny_model, tmp_path / f"past-{version}")
    serving = await PolicyServers.open(config)
    try:
        await serving.start_pool()
        await serving.serve_past_selves({}, [(0, folders[0]), (1, folders[1])])
        policies = {one.name: one for one in serving.past({"past-0": 0.5, "past-1": 0.5}, ["past-0", "past-1"])}
        assert {name: (policy.model, policy.share) for name, policy in policies.items()} == {
            "past-0": ("policy", 0.5),
            "past-1": ("policy", 0.5),
        }
        first, second = policies["past-0"], policies["past-1"]
        assert reloads(fakes, first)[0] == [] and reloads(fakes, second)[0] == [1]
        for _ in range(2):
            await serving.serve_past_selves({}, [(2, folders[2]), (1, folders[1])])
        assert serving.past({"past-2": 1.0}, ["past-2", "past-1"])[0].endpoints == first.endpoints
        assert reloads(fakes, first)[0] == [2] and reloads(fakes, second)[0] == [1]

        # One that dies has the same weights again before it answers.
        _, port = reloads(fakes, first)
        fakes.kill(port)
        await until(lambda: fakes.notes(port)[-1] == "/resume" and reloads(fakes, first)[0] == [2, 2])
        assert f"start {tiny_model.name} none" in fakes.notes(port)
    finally:
        await serving.stop()
    assert {log.name for log in config.run_dir.glob("*.log")} == {"vllm.log", "vllm-past-1.log", "vllm-past-2.log"}
    assert all(fakes.ended(port_of(policy.endpoints[0])) for policy in (first, second))
