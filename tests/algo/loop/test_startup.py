"""Which of vLLM and the trainer starts when."""

import asyncio
import contextlib
import threading
from types import SimpleNamespace

import pytest

from algo.loop import startup
from configs.loading import load_config


@pytest.mark.parametrize("shares", [True, False])
async def test_where_both_share_gpus_vllm_has_measured_them_before_the_trainer_loads(monkeypatch, shares):
    events, trainer_began = [], threading.Event()

    class FakeServing:
        @classmethod
        async def open(cls, *_):
            events.append("vLLM begins")
            if not shares:  # it waits for the trainer, so that only a start side by side can end
                await asyncio.to_thread(trainer_began.wait, 60)
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
            trainer_began.set()

        def close(self):
            events.append("the trainer stops")

    monkeypatch.setattr(startup, "PolicyServers", FakeServing)
    monkeypatch.setattr(startup, "Engine", FakeEngine)
    device = ["training.device=cuda", "serving.share_gpus=true"] if shares else []
    opened = SimpleNamespace(config=load_config(None, device), checkpoint=None, state=SimpleNamespace(policy_version=0))
    async with contextlib.AsyncExitStack() as stack:
        await startup.start_policy(opened, stack)
    if shares:
        assert events[:5] == ["vLLM begins", "vLLM is ready", "vLLM sleeps", "the trainer loads", "vLLM wakes"]
    else:
        assert events[:3] == ["vLLM begins", "the trainer loads", "vLLM is ready"]
    assert set(events[-2:]) == {"vLLM stops", "the trainer stops"}
