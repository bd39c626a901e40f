"""The pages before real parts: hub, vLLM and the pages' server as processes, and a person at Chromium.

A person plays a table of a real policy to its end by clicks, and what was kept is read back from the hub
as a demonstration of its own and of nobody else. Everything with fakes is in ``runners/werewolf/web``.
"""

import asyncio
import json
import os
import random
import shutil
import subprocess
import sys
from types import SimpleNamespace

import pytest

from algo.werewolf.demonstrations import StoredGames, demonstrations_of, stored_games
from configs.loading import load_config
from store.client import connect
from store.schema import PolicyResources
from store.werewolf import DEMONSTRATION, PERSON
from tests.runners.werewolf.web.test_browser_play import opens_a_table, plays_on
from tests.support.hub.hub_process import HubProcess
from tests.support.werewolf.browser import Person, at_the_browser, start_driver

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]

RUN, VERSION = "first-0123abcd", 24
LIMITS = {"context_tokens": 2048, "reply_tokens": 16}


@pytest.fixture
def checkpoint(tmp_path, tiny_model):
    """A run's folder with a checkpoint of its 24th step; the model in it."""
    folder = tmp_path / "runs" / "first" / "checkpoints" / f"step-{VERSION:06d}"
    shutil.copytree(tiny_model, folder / "huggingface")
    (folder / "state.json").write_text(json.dumps({"run_id": RUN, "step": VERSION, "policy_version": VERSION}))
    settings = f"run: {{name: first}}\nmodel: {{path: {tiny_model}, dtype: float32}}\ntraining: {{device: cpu}}\n"
    (tmp_path / "runs" / "first" / "config.yaml").write_text(settings + "serving: {kv_cache_gb: 0.5}\n")
    return folder / "huggingface"


@pytest.fixture
async def start():
    """Starts a module of ours as a process; all end with the test."""
    started = []

    async def start(module, *arguments, stdout=None):
        command = [sys.executable, "-m", module, *map(str, arguments)]
        process = await asyncio.create_subprocess_exec(*command, stdout=stdout, env={**os.environ, "PYTHONPATH": "."})
        started.append(process)
        return process

    yield start
    for process in started:
        if process.returncode is None:
            process.terminate()
    await asyncio.gather(*(process.wait() for process in started))


async def said(process, text):
    """The first line of a process that has this text."""
    async with asyncio.timeout(400):
        async for line in process.stdout:
            if text in line.decode():
                return line.decode().strip()
    raise AssertionError(f"it ended without saying {text!r}")


@pytest.fixture
async def vllm(checkpoint, start):
    """Address of a vLLM that ``python -m algo.serve`` has started, ending in /v1."""
    limits = [part for name, value in LIMITS.items() for part in ("--set", f"rollout.{name}={value}")]
    serving = await start("algo.serve", checkpoint.parent.parent.parent, *limits, stdout=subprocess.PIPE)
    line = await said(serving, f"serving version {VERSION}")
    return line.split("--model-url ")[1]


@pytest.fixture
def person():
    driver = start_driver()
    yield Person(driver)
    driver.quit()


async def test_a_person_plays_a_real_policy_and_is_imitated(tmp_path, vllm, start, person, tiny_model):
    hub = await HubProcess(tmp_path).start()
    client = connect(hub.url, retry_seconds=60)
    resources = PolicyResources(run_name=RUN, version=VERSION, endpoints=(vllm,), model="policy")
    await client.update_resources(resources.resources_id, resources.encode())
    web = await start(
        *("runners.werewolf", "web", "--store", hub.url, "--runs", tmp_path / "runs", "--port", 0, "--model-url", vllm),
        stdout=subprocess.PIPE,
    )
    server = SimpleNamespace(url=(await said(web, "in a browser")).split()[-1].rstrip("/"))

    def plays(p):
        p.opens(f"{server.url}/play?lang=zh")
        assert p.sees("[data-value=policy]").text == f"first · 策略 v{VERSION}"
        _, link = opens_a_table(p, server, preset="5p_tiny", others="policy", record=DEMONSTRATION)
        p.opens(link)
        plays_on(p, random.Random(1))
        p.shot("real-policy-played")
        p.clicks(".replay-all")
        p.sees(".result")
        assert p.complaints() == []

    try:
        await at_the_browser(plays, person)
        found = await stored_games(client, StoredGames(RUN, DEMONSTRATION), 9)
        settings = (f"model.path={tiny_model}", "warm_start.selection={losers: 1.0, draws: 1.0}")
        imitated = demonstrations_of(found.finished, load_config(None, settings), PERSON)
        (game,), (trajectory,) = found.finished, imitated.trajectories
        assert {turn.policy_version for turn in game.turns if turn.policy == "policy"} == {VERSION}
        assert imitated.turns == len(trajectory.turn_ends) > 0
    finally:
        await client.close()
        hub.stop()
