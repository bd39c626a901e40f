"""An algorithm that is killed at every stage of its steps ends with the weights of one that was left alone.

Real hub (`python -m store`), runner, vLLM (started here and attached to, so that a restart costs no start of vLLM) and
verl. One seed gives one run on one machine, so the comparison is exact.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from conftest import free_port
from hub_process import HubProcess
from test_end_to_end import marked_environment, processes_marked, wait_until

from algo.serving.launch import vllm_command, vllm_environment
from configs.loading import load_config
from store.client import connect

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1500)]

STEPS = 3
GAMES = 4
# (step, words of the log that tell what is being done): killed as soon as the log says so. Checkpoints are made after
# every second step, so a kill in the second undoes an update: what its weights were to play is played anew.
KILLS = {
    "shortly": [(2, "updating"), (3, "giving version")],
    "everywhere": [(1, "playing"), (1, "updating"), (2, "giving version"), (2, "writing a checkpoint"), (3, "playing")],
}
KILLED = [pytest.param("shortly"), pytest.param("everywhere", marks=pytest.mark.soak)]


class Machine:
    """What stays up while algorithms come and go."""

    def __init__(self, folder: Path, model: Path):
        self.folder = folder
        self.model = model
        self.children: list[subprocess.Popen] = []
        self.hub = HubProcess(folder)
        self.vllm_port = free_port()

    def settings(self, name: str, *more: str) -> list[str]:
        return [
            f"run.name={name}",
            f"run.dir={self.folder}",
            f"run.steps={STEPS}",
            f"store.url={self.hub.url}",
            "rollout.groups_per_step=2",
            "rollout.rollouts_per_group=2",
            "checkpoint.every_steps=2",
            f"model.path={self.model}",
            "serving.mode=attach",
            f"serving.urls=[http://127.0.0.1:{self.vllm_port}]",
            *more,
        ]

    async def start(self):
        await self.hub.start()
        config = load_config(None, [f"model.path={self.model}", f"serving.port={self.vllm_port}"])
        self._spawn("vllm", vllm_command(config), vllm_environment(config))
        runner = [sys.executable, "-m", "runners.werewolf", "--n", "8", "--store", self.hub.url]
        self._spawn("runner", runner, dict(os.environ))

    def algorithm(self, name: str, *more: str) -> subprocess.Popen:
        overrides = [part for setting in self.settings(name, *more) for part in ("--set", setting)]
        command = [sys.executable, "-m", "algo.werewolf_verl", "--resume", "auto", *overrides]
        return self._spawn(name, command, marked_environment(self.folder / name))

    def _spawn(self, name, command, environment):
        with (self.folder / f"{name}.log").open("ab") as log:
            child = subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, env=environment, start_new_session=True
            )
        self.children.append(child)
        return child

    def log(self, name: str) -> str:
        path = self.folder / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def stop(self):
        for child in self.children:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGTERM)
        for child in self.children:
            child.wait(timeout=60)
        self.hub.stop()


@pytest.fixture(scope="module")
def machine(tmp_path_factory, tiny_model):
    import asyncio

    import requests

    machine = Machine(tmp_path_factory.mktemp("machine"), tiny_model)
    try:
        asyncio.run(machine.start())

        def healthy():
            try:
                return requests.get(f"http://127.0.0.1:{machine.vllm_port}/health", timeout=5).status_code == 200
            except requests.RequestException:
                return False

        wait_until(healthy, 300, "vLLM's start")
        yield machine
    finally:
        machine.stop()


def finish(machine, name, *more):
    algorithm = machine.algorithm(name, *more)
    assert algorithm.wait(timeout=600) == 0, machine.log(name)[-5000:] + machine.log("runner")[-3000:]


def kill_when(machine, name, step, doing):
    """Start the algorithm and kill it, and all its processes, once it is at a stage."""
    before = len(machine.log(name))
    algorithm = machine.algorithm(name)
    at_stage = f"step {step}/{STEPS}: {doing}"
    deadline = time.monotonic() + 300
    while at_stage not in machine.log(name)[before:]:
        assert algorithm.poll() is None, machine.log(name)[-5000:]
        assert time.monotonic() < deadline, f"it never came to {at_stage!r}: {machine.log(name)[-3000:]}"
        time.sleep(0.005)
    os.kill(algorithm.pid, signal.SIGKILL)
    assert algorithm.wait() == -signal.SIGKILL

    def ranks():  # Ray's small agents stay for a minute; what holds the model goes with the algorithm
        return [command for command in processes_marked(machine.folder / name) if "TrainingRank" in command]

    wait_until(lambda: not ranks(), 60, "the end of the ranks")


def steps_of(machine, name):
    lines = (machine.folder / name / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def weights_of(machine, name):
    from safetensors.torch import load_file

    return load_file(machine.folder / name / "checkpoints" / f"step-{STEPS:06d}" / "huggingface" / "model.safetensors")


@pytest.fixture(scope="module")
def whole(machine):
    """A run that nothing disturbs."""
    finish(machine, "whole")
    return steps_of(machine, "whole"), weights_of(machine, "whole")


@pytest.mark.parametrize("name", KILLED)
async def test_killed_at_many_stages_it_ends_with_the_same_weights(machine, whole, name):
    import torch

    for step, doing in KILLS[name]:
        kill_when(machine, name, step, doing)
    finish(machine, name)

    steps, weights = whole
    broken = steps_of(machine, name)
    assert [line["step"] for line in broken] == [line["step"] for line in steps] == [1, 2, 3]
    for ours, undisturbed in zip(broken, steps, strict=True):
        for metric in ("games/finished", "turns/in_batch", "tokens/trained", "policy_version", "reward/wolf"):
            assert ours["data"][metric] == undisturbed["data"][metric], (ours["step"], metric)
    for tensor, values in weights_of(machine, name).items():
        assert torch.equal(values, weights[tensor]), tensor
    summary = json.loads((machine.folder / name / "summary.json").read_text())
    assert summary["steps"] == STEPS and summary["games"] == {"finished": STEPS * GAMES, "failed": 0}
    assert not list((machine.folder / name / "checkpoints").glob("unfinished-*"))
    await check_games_of(machine, name)


async def check_games_of(machine, name):
    """Games in flight were taken up, and none is left in the queue."""
    client = connect(machine.hub.url)
    rollouts = [
        rollout
        for rollout in await client.query_rollouts()
        if rollout.metadata["run"].startswith(f"{name}-")  # the run's id, which all its processes shared
    ]
    await client.close()
    assert len({rollout.metadata["run"] for rollout in rollouts}) == 1
    succeeded = Counter(rollout.metadata["task_id"] for rollout in rollouts if rollout.status == "succeeded")
    assert len(succeeded) == STEPS * GAMES
    # The first step's were enqueued for the weights that every process began with, so all of them shared these games.
    assert {count for game_id, count in succeeded.items() if "step0001" in game_id} == {1}
    assert {rollout.status for rollout in rollouts} <= {"succeeded", "failed", "cancelled"}


def test_games_in_flight_are_played_by_weights_that_are_not_too_old(machine):
    finish(machine, "ahead", "rollout.max_policy_lag=1", "training.rollout_correction.rollout_is=token")
    steps = [line["data"] for line in steps_of(machine, "ahead")]
    assert [step["policy_version"] for step in steps] == [1, 2, 3]
    assert steps[0]["policy_lag/max"] == 0
    assert 0 < max(step["policy_lag/max"] for step in steps) <= 1
    assert all(step["games/finished"] == GAMES and step["tokens/trained"] > 0 for step in steps)
