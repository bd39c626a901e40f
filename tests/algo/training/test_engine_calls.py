"""What an engine asks of its ranks and of Ray, which are fakes."""

import math
import threading
from types import SimpleNamespace

import torch
from verl.utils import tensordict_utils

from algo.sequences.batch import build_batch
from algo.training import engine as engine_module
from algo.training.engine import Engine
from algo.training.policy_states import load_checkpoint
from configs.loading import load_config
from tests.support.small_models import TEMPERATURE, make_trajectories


def test_nobody_asks_ray_for_anything_after_it_was_shut_down(monkeypatch, tmp_path):
    """Two threads close it at once, as Ctrl-C in mid-update makes them. Such a request waits for ever, and with it the
    process."""
    engine = Engine.__new__(Engine)  # without its ranks
    engine._workers, engine._pool, engine._closing = None, SimpleNamespace(pgs=["group"]), threading.Lock()
    engine._ray_directory = tmp_path / "ray"
    calls, second = [], threading.Thread(target=engine.close)

    def remove(group):
        calls.append("remove")
        if not second.is_alive():
            second.start()
            second.join(0.3)  # it may go on only when the first is through

    fake = SimpleNamespace(
        util=SimpleNamespace(remove_placement_group=remove), shutdown=lambda: calls.append("shutdown")
    )
    monkeypatch.setattr(engine_module, "ray", fake)
    engine.close()
    second.join()
    assert calls == ["remove", "shutdown"]


def test_an_update_moves_weights_in_cpu_memory_to_the_gpu_and_back_once_however_many_steps_it_makes(caplog):
    calls, norms = [], [1.0] * 4 + [math.nan] * 2

    class FakeRanks:
        def move(self, part, device):
            calls.append((part, device))

        def train(self, data):
            # As verl reads it: its TrainingWorker would else load and offload around this optimizer step.
            calls.append(tensordict_utils.get(data, "disable_auto_offload"))
            metrics = {"grad_norm": norms.pop()}
            return SimpleNamespace(get=lambda: tensordict_utils.get_tensordict({}, {"metrics": metrics}))

    engine = Engine.__new__(Engine)  # without its ranks
    engine._config = load_config(None, ["training.mini_batch_size=2", "training.epochs=2"])
    engine._active, engine._updates, engine._workers = "policy", {"policy": {"policy": 0}}, FakeRanks()
    trajectories = make_trajectories(6)
    advantages = [torch.ones(len(row.token_ids)) for row in trajectories]
    engine.update(build_batch(trajectories, advantages, temperature=TEMPERATURE))
    assert calls == [("policy", "device"), *[True] * 6, ("policy", "cpu")]
    assert "2 of 6 optimizer steps skipped" in caplog.text


def test_a_checkpoint_continues_with_the_configured_settings_of_the_optimizer():
    """A run may be resumed with others than those that the optimizer saved."""

    def fake_part(**settings):
        optimizer = torch.optim.AdamW([torch.zeros(1, requires_grad=True)], **settings)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
        return SimpleNamespace(engine=SimpleNamespace(optimizer=optimizer, lr_scheduler=schedule))

    saved = fake_part(lr=0.1, betas=(0.9, 0.99), weight_decay=0.1).engine.optimizer.state_dict()
    part = fake_part(lr=0.2, betas=(0.8, 0.95), weight_decay=0.3)
    part.load_checkpoint = lambda directory: part.engine.optimizer.load_state_dict(saved)
    load_checkpoint(part, "folder", 0.2)
    (group,) = part.engine.optimizer.param_groups
    assert (group["lr"], group["betas"], group["weight_decay"]) == (0.2, (0.8, 0.95), 0.3)
