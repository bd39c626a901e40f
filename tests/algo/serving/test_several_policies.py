"""Policies with whole weights that learn side by side: vLLM servers of their own, all given new weights together."""

import shutil
from itertools import chain

import pytest

from algo.serving.policies import PolicyServers
from tests.support.algo.fake_vllm import port_of
from tests.support.waiting import until


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
    logs = {log.name for log in config.run_dir.glob("*.log")}
    assert logs == {"vllm-wolves.log", "vllm-wolves-2.log", "vllm-villagers.log", "vllm-villagers-2.log"}
