"""LoRA: adapters are all that trains, what is exported has them merged in, and switched off they are the reference."""

import pytest
import torch
from peft import PeftModel

from algo.sequences.batch import build_batch
from algo.training.engine import Engine
from configs.werewolf import WerewolfConfig
from tests.support.small_models import (
    TEMPERATURE,
    largest_difference,
    load_model,
    make_model,
    make_trajectories,
    plain_log_probs,
)

RANK, ALPHA = 4, 10


def make_config(folder, ranks):
    return WerewolfConfig.model_validate(
        {
            "model": {"path": folder, "lora_rank": RANK, "lora_alpha": ALPHA},
            "reference": {"kl": "reward"},
            "training": {"ranks": ranks, "learning_rate": 1e-1, "mini_batch_size": 8, "micro_batch_size": 2},
        }
    )


@pytest.fixture(scope="module")
def started(ray_cluster, tmp_path_factory):
    directory = tmp_path_factory.mktemp("lora")
    make_model(directory / "model", tied=True)
    with Engine(make_config(directory / "model", ranks=2)) as engine:
        engine.save(directory / "start", step=0)
        yield engine, directory


@pytest.fixture
def fresh(started):
    engine, directory = started
    assert engine.load(directory / "start") == 0
    return engine, directory


def train(engine, batch, times=2):
    for _ in range(times):
        engine.update(batch)


@pytest.fixture
def batch():
    trajectories = make_trajectories(9)
    torch.manual_seed(3)
    advantages = [torch.randn(len(row.token_ids)) for row in trajectories]
    return build_batch(trajectories, advantages, temperature=TEMPERATURE)


def test_the_exported_model_says_what_the_engine_says(fresh, batch, tmp_path):
    engine, directory = fresh
    trajectories = make_trajectories(9)
    before, reference = engine.log_probs(batch), engine.reference_log_probs(batch)
    with torch.no_grad():
        base = [plain_log_probs(load_model(directory / "model"), trajectory) for trajectory in trajectories]
    assert largest_difference(before, base) < 1e-5
    train(engine, batch)
    after = engine.log_probs(batch)
    assert largest_difference(after, before) > 0.05
    # Exporting leaves the weights as they are.
    engine.export(tmp_path / "exported")
    assert largest_difference(engine.log_probs(batch), after) == 0
    exported = load_model(tmp_path / "exported")
    with torch.no_grad():
        assert largest_difference(after, [plain_log_probs(exported, each) for each in trajectories]) < 1e-5
    # What vLLM is given: the adapters alone, exact.
    engine.export_adapters(tmp_path / "adapters")
    adapted = PeftModel.from_pretrained(load_model(directory / "model"), tmp_path / "adapters")
    with torch.no_grad():
        assert largest_difference(after, [plain_log_probs(adapted, each) for each in trajectories]) < 1e-5
    # Without its adapters the policy is what it started from, before and after.
    assert largest_difference(reference, before) == 0
    assert largest_difference(engine.reference_log_probs(batch), reference) == 0
