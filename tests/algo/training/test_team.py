"""Several policies on one engine: each learns as if it were alone there, and none is touched by another's update."""

from contextlib import closing

import pytest
import torch
from safetensors.torch import load_file

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

RATES = {"wolves": 3e-2, "villagers": 1e-2}
SEEDS = {"wolves": 1, "villagers": 2}
TEAM = {"wolves": {"side": "wolf", "learning_rate": RATES["wolves"]}, "villagers": {"side": "good"}}


def make_config(folder, kind):
    ranks = 1 if kind == "adapters" else 2  # adapters on two: tests/end_to_end/test_team.py
    training = dict(ranks=ranks, mini_batch_size=4, micro_batch_size=2, lr_schedule="cosine", lr_warmup_steps=2)
    return WerewolfConfig.model_validate(
        {
            "model": {"path": folder, "lora_rank": 4 if kind == "adapters" else 0, "lora_alpha": 10},
            "reference": {"kl": "reward"} if kind == "adapters" else {},
            "run": {"seed": 7, "steps": 6},
            # With a critic, each policy has one of its own.
            "advantage": {"estimator": "gae" if kind == "adapters" else "grpo"},
            "training": training | {"learning_rate": RATES["villagers"]},
            "policies": TEAM,
        }
    )


def trajectories_of(name):
    return make_trajectories(9, seed=SEEDS[name])


def batch_of(name):
    trajectories = trajectories_of(name)
    torch.manual_seed(SEEDS[name])
    rows = [[torch.randn(len(each.token_ids)) for each in trajectories] for _ in range(3)]
    return build_batch(trajectories, rows[0], temperature=TEMPERATURE, values=rows[1], returns=rows[2])


def exported(engine, folder):
    engine.export(folder)
    return load_file(folder / "model.safetensors")


def same(ours, theirs):
    return ours.keys() == theirs.keys() and all(torch.equal(values, theirs[name]) for name, values in ours.items())


def updated(engine, name, kind):
    """Numbers of one update of the policy, and of its critic."""
    if kind == "adapters":
        engine.update_critic(batch_of(name))
    return {
        key: value for key, value in engine.update(batch_of(name)).items() if key != "actor/mfu" and "perf" not in key
    }


@pytest.mark.parametrize("kind", ["whole", "adapters"])
def test_each_policy_learns_as_if_it_were_alone_and_comes_back_from_a_checkpoint(ray_cluster, tmp_path, kind):
    model = make_model(tmp_path / "model", tied=True)
    with closing(Engine(make_config(model, kind))) as engine:
        first = engine.log_probs(batch_of("wolves"))  # the first of the team is at work
        if kind == "adapters":
            assert largest_difference(first, rows_of(load_model(model), trajectories_of("wolves"))) < 1e-5
            assert largest_difference(engine.reference_log_probs(batch_of("wolves")), first) == 0
        engine.save(tmp_path / "start", step=0)
        engine.select("wolves")
        expected = [updated(engine, "wolves", kind) for _ in range(3)]
        rates = [metrics["actor/lr"] for metrics in expected]
        assert rates == pytest.approx([0, RATES["wolves"] / 2, RATES["wolves"]])  # the schedule begins at 0
        values = engine.values(batch_of("wolves")) if kind == "adapters" else None
        weights = exported(engine, tmp_path / "alone")

        assert engine.load(tmp_path / "start") == 0
        engine.select("villagers")
        assert largest_difference(engine.log_probs(batch_of("wolves")), first) == 0  # all begin alike
        villagers = exported(engine, tmp_path / "villagers")

        engine.select("wolves")
        metrics = [updated(engine, "wolves", kind)]
        engine.select("villagers")
        # What was in use before is gone.
        assert largest_difference(engine.log_probs(batch_of("wolves")), first) == 0
        assert same(exported(engine, tmp_path / "villagers"), villagers)
        rates = [updated(engine, "villagers", kind)["actor/lr"] for _ in range(3)]
        assert rates == pytest.approx([0, RATES["villagers"] / 2, RATES["villagers"]])
        villagers = exported(engine, tmp_path / "villagers")

        engine.select("wolves")
        metrics.append(updated(engine, "wolves", kind))
        engine.save(tmp_path / "checkpoint", step=2)
        engine.select("wolves")
        metrics.append(updated(engine, "wolves", kind))
        assert metrics == expected
        assert same(exported(engine, tmp_path / "wolves"), weights)
        if values is not None:
            assert largest_difference(engine.values(batch_of("wolves")), values) == 0
            check_adapters(engine, model, first, tmp_path)
        engine.select("villagers")
        assert same(exported(engine, tmp_path / "villagers"), villagers) and not same(villagers, weights)

        assert engine.load(tmp_path / "checkpoint") == 2
        engine.select("wolves")
        again = updated(engine, "wolves", kind)
        assert again == expected[2] and same(exported(engine, tmp_path / "wolves"), weights)
        engine.select("villagers")
        assert same(exported(engine, tmp_path / "villagers"), villagers)
    assert (tmp_path / "checkpoint" / "wolves" / "policy").is_dir()


def check_adapters(engine, model, first, folder):
    """The wolves' exports, merged (folder / "wolves") or adapters alone, are the policy; its base is the reference."""
    trajectories, after = trajectories_of("wolves"), engine.log_probs(batch_of("wolves"))
    assert largest_difference(after, first) > 0.05
    assert largest_difference(after, rows_of(load_model(folder / "wolves"), trajectories)) < 1e-5
    engine.export_adapters(folder / "adapters")
    assert largest_difference(after, rows_of(load_model(model, folder / "adapters"), trajectories)) < 1e-5
    assert largest_difference(engine.reference_log_probs(batch_of("wolves")), first) == 0
