"""Which of vLLM and the trainer starts when, and that both stop."""

import asyncio
import contextlib
import os
import sys
import threading
from types import SimpleNamespace

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from algo.loop import startup
from algo.run.summary import RunSummary
from algo.serving.preconditions import ServingError
from configs.loading import load_config
from configs.section import ConfigError


class Machine:
    """Fakes of vLLM and the trainer, and what becomes of them. serve: what vLLM does until it is ready."""

    def __init__(self, monkeypatch, serve, loaded=lambda: None):
        self.events = events = []
        self.trainer_began = threading.Event()
        machine = self

        class FakeServing:
            @classmethod
            async def open(cls, *_):
                events.append("vLLM begins")
                await serve(machine)
                events.append("vLLM is ready")
                return cls()

            async def sleep(self):
                events.append("vLLM sleeps")

            async def wake(self):
                events.append("vLLM wakes")

            async def stop(self):
                events.append("vLLM stops")

        class FakeEngine:
            def __init__(self, config):
                events.append("the trainer loads")
                machine.trainer_began.set()
                loaded()

            def close(self):
                events.append("the trainer stops")

        monkeypatch.setattr(startup, "PolicyServers", FakeServing)
        monkeypatch.setattr(startup, "Engine", FakeEngine)

    async def start(self, *settings):
        config = load_config(None, settings)
        opened = SimpleNamespace(config=config, checkpoint=None, state=SimpleNamespace(policy_version=0))
        async with contextlib.AsyncExitStack() as stack:
            await startup.start_policy(opened, stack)


async def at_once(machine):
    pass


async def with_the_trainer(machine):
    """So that only a start side by side can end."""
    await asyncio.to_thread(machine.trainer_began.wait, 60)


@pytest.mark.parametrize("shares", [True, False])
async def test_where_both_share_gpus_vllm_has_measured_them_before_the_trainer_loads(monkeypatch, shares):
    machine = Machine(monkeypatch, at_once if shares else with_the_trainer)
    await machine.start(*(["training.device=cuda", "serving.share_gpus=true"] if shares else []))
    if shares:
        assert machine.events[:5] == [
            "vLLM begins", "vLLM is ready", "vLLM sleeps", "the trainer loads", "vLLM wakes",
        ]  # fmt: skip
    else:
        assert machine.events[:3] == ["vLLM begins", "the trainer loads", "vLLM is ready"]
    assert set(machine.events[-2:]) == {"vLLM stops", "the trainer stops"}


async def test_what_vllm_refuses_at_once_starts_no_trainer(monkeypatch):
    async def refuse(machine):
        raise ServingError("the port is in use")

    machine = Machine(monkeypatch, refuse)
    with pytest.raises(ServingError, match="in use"):
        await machine.start()
    assert machine.events == ["vLLM begins"]


@pytest.mark.parametrize("ends", ["vLLM fails", "Ctrl-C"])
async def test_a_trainer_that_loads_while_the_start_ends_is_closed(monkeypatch, ends):
    released, starting = threading.Event(), None

    async def serve(machine):
        await with_the_trainer(machine)
        asyncio.get_running_loop().call_later(0.1, released.set)  # after what ends the start
        if ends == "vLLM fails":
            raise ServingError("vLLM died")
        starting.cancel()
        await asyncio.Event().wait()

    machine = Machine(monkeypatch, serve, lambda: released.wait(60))
    starting = asyncio.create_task(machine.start())
    with pytest.raises(ServingError if ends == "vLLM fails" else asyncio.CancelledError):
        await starting
    assert machine.events == ["vLLM begins", "the trainer loads", "the trainer stops"]


def test_wandb_gets_the_settings_and_clearml_is_rejected(monkeypatch, tmp_path):
    """verl's own Tracking; a fake stands for the package of wandb."""
    begun = []
    wandb = SimpleNamespace(init=lambda **given: begun.append(given), Settings=SimpleNamespace)
    wandb.log = wandb.finish = lambda **_: None
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    monkeypatch.setattr(os, "environ", dict(os.environ))
    config = load_config(None, [f"run.dir={tmp_path}", "run.name=mine", "log.backends=[wandb]"])
    config.run_dir.mkdir()
    startup.open_tracking(config, RunSummary(config.run_dir)).finish()
    (given,) = begun
    assert given["name"] == "mine" and given["config"]["run"]["name"] == "mine"
    with pytest.raises(ConfigError, match=r"\['clearml'\] cannot be used; known: .*wandb"):
        startup.check_log_backends(load_config(None, ["log.backends=[clearml]"]))
    with pytest.raises(ConfigError, match=r"vemlp_wandb.*cannot be used; known: console, file, mlflow"):
        startup.check_log_backends(load_config(None, ["log.backends=[file,vemlp_wandb]"]))


def test_a_resumed_run_shows_each_step_once_in_tensorboard(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "environ", dict(os.environ))
    config = load_config(None, [f"run.dir={tmp_path}", "run.name=mine", "log.backends=[tensorboard]"])
    config.run_dir.mkdir()
    summary = RunSummary(config.run_dir)
    first = startup.open_tracking(config, summary)
    for step in (1, 2, 3):
        first.log({"x": float(step)}, step=step)
    first.finish()
    summary.before, summary.steps = {"x": 0.0}, [{"x": 1.0}]  # the checkpoint is older
    resumed = startup.open_tracking(config, summary)
    resumed.log({"x": 20.0}, step=2)
    resumed.finish()
    shown = EventAccumulator(str(config.run_dir / "tensorboard")).Reload().Scalars("x")
    assert [(point.step, point.value) for point in shown] == [(0, 0.0), (1, 1.0), (2, 20.0)]
    without = load_config(None, [f"run.dir={tmp_path}", "run.name=mine", "log.backends=[]"])
    startup.open_tracking(without, summary).finish()
    assert any((config.run_dir / "tensorboard").iterdir())  # what is not written again stays
