"""Members with whole weights: servers of their own, which are given new weights only when their member changes."""

import asyncio
import os
import shutil
import signal
from contextlib import AsyncExitStack

import pytest

from algo.league.state import Published
from algo.loop.startup import start_league
from algo.run.checkpoints import RunState
from algo.run.folder import OpenedRun
from tests.support.algo.fake_vllm import serving_config


@pytest.fixture
def opened(tmp_path, tiny_model):
    settings = serving_config(tmp_path, tiny_model).model_dump()
    league = {"league": {"every_steps": 1, "servers": 2}, "game": {"opponent": "past"}}
    config = type(serving_config(tmp_path, tiny_model)).model_validate(settings | league)
    return OpenedRun(config, RunState(run_id="run-1"), None, began_before=False, lock=None)


def reloads(fakes, policy):
    """Versions that the server of a published policy was given, in order."""
    port = int(policy.endpoint.rpartition(":")[2].removesuffix("/v1"))
    notes = [note.split() for note in fakes.notes(port)]
    return [int(note[1]) for note in notes if note[0] == "/update_weight_version"], port


async def test_only_servers_whose_member_changes_are_given_weights(opened, fakes, tiny_model, tmp_path):
    folders = {0: tiny_model}
    for version in (1, 2):
        folders[version] = shutil.copytree(tiny_model, tmp_path / f"past-{version}")
    async with AsyncExitStack() as stack:
        league = await start_league(opened, None, None, None, stack)
        assert opened.state.league is league.state and league.policies() == {}
        places = league._places
        shown = Published(version=1, shares={"past-000000": 0.5, "past-000001": 0.5}, servers=[0, 1])
        await places.serve(shown, folders)
        policies = places.policies(shown)
        assert {name: (policy.model, policy.share) for name, policy in policies.items()} == {
            "past-000000": ("policy", 0.5),
            "past-000001": ("policy", 0.5),
        }
        first, second = policies["past-000000"], policies["past-000001"]
        assert reloads(fakes, first)[0] == [] and reloads(fakes, second)[0] == [1]
        shown = Published(version=2, shares={"past-000002": 1.0}, servers=[2, 1])
        await places.serve(shown, folders)
        await places.serve(shown, folders)
        assert places.policies(shown)["past-000002"].endpoint == first.endpoint
        assert reloads(fakes, first)[0] == [2] and reloads(fakes, second)[0] == [1]

        # One that dies has its member's weights again before it answers.
        _, port = reloads(fakes, first)
        os.kill(fakes.pid(port), signal.SIGKILL)
        async with asyncio.timeout(30):
            while fakes.notes(port)[-1] != "/resume" or reloads(fakes, first)[0] != [2, 2]:
                await league.check_alive()
                await asyncio.sleep(0.02)
        assert f"start {tiny_model.name} none" in fakes.notes(port)
    assert {log.name for log in opened.config.run_dir.glob("*.log")} == {"vllm-past-1.log", "vllm-past-2.log"}
    for policy in (first, second):
        with pytest.raises(ProcessLookupError):
            os.kill(fakes.pid(reloads(fakes, policy)[1]), 0)


async def test_without_a_pool_nothing_is_started(opened, fakes):
    settings = opened.config.model_dump() | {"league": {}, "game": {}}
    opened.config = type(opened.config).model_validate(settings)
    async with AsyncExitStack() as stack:
        assert await start_league(opened, None, None, None, stack) is None
    assert opened.state.league is None and not list(fakes.folder.glob("*.pid"))
