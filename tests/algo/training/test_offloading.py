"""Weights that are kept in CPU memory travel to the GPU and back once for an update, not for each optimizer step."""

from types import SimpleNamespace

import torch
from verl.utils import tensordict_utils

from algo.sequences.batch import build_batch
from algo.training.engine import Engine
from configs.loading import load_config
from tests.support.small_models import TEMPERATURE, make_trajectories


def test_an_update_moves_weights_twice_however_many_steps_it_makes():
    calls = []

    class FakeRanks:
        def move(self, part, device):
            calls.append((part, device))

        def train(self, data):
            # As verl reads it: its TrainingWorker would else load and offload around this optimizer step.
            calls.append(tensordict_utils.get(data, "disable_auto_offload"))
            metrics = {"grad_norm": 1.0}
            return SimpleNamespace(get=lambda: tensordict_utils.get_tensordict({}, {"metrics": metrics}))

    engine = Engine.__new__(Engine)  # without its ranks
    engine._config = load_config(None, ["training.mini_batch_size=2", "training.epochs=2"])
    engine._active, engine._updates, engine._workers = "policy", {"policy": {"policy": 0}}, FakeRanks()
    trajectories = make_trajectories(6)
    advantages = [torch.ones(len(row.token_ids)) for row in trajectories]
    engine.update(build_batch(trajectories, advantages, temperature=TEMPERATURE))
    assert calls == [("policy", "device"), *[True] * 6, ("policy", "cpu")]
