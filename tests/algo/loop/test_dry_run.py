"""The dry run of a training, with fakes of what a run starts."""

import io
from collections import Counter
from types import SimpleNamespace

import torch
from rich.console import Console

from algo.loop import dry_run
from algo.sequences.trajectories import TrajectorySet, synthetic_trajectory
from configs.loading import load_config


async def test_vllm_sleeps_while_the_trainer_is_at_work(monkeypatch, tiny_model):
    events = []

    def event(name, result=None):
        async def happen(*_):
            events.append(name)
            return result

        return happen

    async def compute(function, *_):
        events.append(function.__name__)
        return [torch.zeros(3)] if function is dry_run.log_probs_of else (None, None)

    config = load_config(None, ["training.device=cuda", "serving.share_gpus=true", f"model.path={tiny_model}"])
    game = SimpleNamespace(triplets=[], outcome=SimpleNamespace(transcript=""))
    run = SimpleNamespace(
        config=config,
        state=SimpleNamespace(policy_version=0, step=0),
        engine=None,
        trainer=SimpleNamespace(run=compute),
        serving=SimpleNamespace(sleep=event("vLLM sleeps"), wake=event("vLLM wakes")),
        queue=SimpleNamespace(play=event("a game", SimpleNamespace(finished=[game], left_out=Counter()))),
        resources=lambda: SimpleNamespace(model_dump_json=lambda indent: "{}"),
        refresh_endpoints=None,
        select_past_selves=event("past selves"),
    )
    workload = SimpleNamespace(
        tasks=lambda step: [SimpleNamespace(encode=dict)], rewards_of=None, metrics=lambda played: {}
    )
    found = TrajectorySet((synthetic_trajectory("game", (1, 2, 3), (0, 1, 1)),), Counter())
    monkeypatch.setattr(dry_run, "start", event("start", run))
    monkeypatch.setattr(dry_run, "build_trajectories", lambda *_: found)
    monkeypatch.setattr(dry_run, "AutoTokenizer", SimpleNamespace(from_pretrained=lambda *_, **__: None))
    monkeypatch.setattr(dry_run, "cancel_on_signals", lambda: None)
    await dry_run.dry_run(SimpleNamespace(config=config), workload, Console(file=io.StringIO()))
    assert events[2:] == ["a game", "vLLM sleeps", "values_and_kl", "log_probs_of", "vLLM wakes"]
