"""LoRA: adapters are all that trains, what is exported has them merged in, and switched off they are the reference."""

import torch

from algo.sequences.batch import build_batch
from algo.training.engine import Engine
from configs.werewolf import WerewolfConfig
from tests.support.small_models import (
    TEMPERATURE,
    largest_difference,
    load_model,
    make_model,
    make_trajectories,
    rows_of,
)


def test_the_exported_model_says_what_the_engine_says(ray_cluster, tmp_path):
    model, trajectories = make_model(tmp_path / "model", tied=True), make_trajectories(9)
    config = WerewolfConfig.model_validate(
        {
            "model": {"path": model, "lora_rank": 4, "lora_alpha": 10},
            "reference": {"kl": "reward"},
            "training": {"ranks": 2, "learning_rate": 1e-1, "mini_batch_size": 8, "micro_batch_size": 2},
        }
    )
    torch.manual_seed(3)
    advantages = [torch.randn(len(row.token_ids)) for row in trajectories]
    batch = build_batch(trajectories, advantages, temperature=TEMPERATURE)

    with Engine(config) as engine:
        before, reference = engine.log_probs(batch), engine.reference_log_probs(batch)
        assert largest_difference(before, rows_of(load_model(model), trajectories)) < 1e-5
        for _ in range(2):
            engine.update(batch)
        after = engine.log_probs(batch)
        assert largest_difference(after, before) > 0.05
        # Exporting leaves the weights as they are.
        engine.export(tmp_path / "exported")
        assert largest_difference(engine.log_probs(batch), after) == 0
        assert largest_difference(after, rows_of(load_model(tmp_path / "exported"), trajectories)) < 1e-5
        # What vLLM is given: the adapters alone, exact.
        engine.export_adapters(tmp_path / "adapters")
        assert largest_difference(after, rows_of(load_model(model, tmp_path / "adapters"), trajectories)) < 1e-5
        # Without its adapters the policy is what it started from, before and after.
        assert largest_difference(reference, before) == 0
        assert largest_difference(engine.reference_log_probs(batch), reference) == 0
