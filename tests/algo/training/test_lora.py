"""LoRA: adapters are all that trains, what is exported has them merged in, and switched off they are the reference.

With a critic on the same folder, whose value head is new.
"""

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForTokenClassification

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
LINEAR_LAYERS = 7


def make_config(folder, ranks):
    return WerewolfConfig.model_validate(
        {
            "model": {"path": folder, "lora_rank": RANK, "lora_alpha": ALPHA},
            "run": {"seed": 7},
            "reference": {"kl": "reward"},
            "advantage": {"estimator": "gae"},
            "critic": {"learning_rate": 1e-2},
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


def saved(checkpoint, part):
    """What each of the two ranks saved of a part."""
    files = [checkpoint / part / f"model_world_size_2_rank_{rank}.pt" for rank in range(2)]
    return [torch.load(file, weights_only=False) for file in files]


def whole(shards, name):
    """A tensor from the shards that the ranks saved."""
    parts = [shard[name] for shard in shards]
    return torch.cat([part.to_local() if hasattr(part, "to_local") else part for part in parts])


def test_an_export_is_the_base_model_with_the_adapters_merged_in(fresh, batch, tmp_path):
    engine, directory = fresh
    start = load_file(directory / "model" / "model.safetensors")
    train(engine, batch)
    engine.save(tmp_path / "saved", step=1)
    engine.export(tmp_path / "exported")
    exported = load_file(tmp_path / "exported" / "model.safetensors")
    shards = saved(tmp_path / "saved", "policy")
    # What is saved is the adapters alone.
    assert {name.rsplit(".", 3)[1] for name in shards[0]} == {"lora_A", "lora_B"}
    assert exported.keys() == start.keys()
    adapted = 0
    for name, weight in start.items():
        expected = weight
        layer = f"base_model.model.{name.removesuffix('weight')}"
        if f"{layer}lora_A.default.weight" in shards[0]:
            down, up = (whole(shards, f"{layer}lora_{each}.default.weight") for each in "AB")
            assert down.shape[0] == up.shape[1] == RANK
            expected = weight + ALPHA / RANK * (up @ down)
            assert (expected - weight).abs().max() > 0.05
            adapted += 1
        assert torch.allclose(exported[name], expected, atol=1e-6), name
    assert adapted == LINEAR_LAYERS * 2


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


def test_what_begins_at_random_follows_from_the_runs_seed(fresh):
    _, directory = fresh
    torch.manual_seed(7)
    plain = AutoModelForTokenClassification.from_pretrained(directory / "model", num_labels=1)
    assert torch.equal(whole(saved(directory / "start", "critic"), "score.weight"), plain.score.weight)
