"""Several policies on one engine: each learns as if it were alone there, and none is touched by another's update."""

import pytest
import torch
from safetensors.torch import load_file

from algo.sequences.batch import build_batch
from algo.training.engine import Engine
from configs.section import ConfigError
from configs.werewolf import WerewolfConfig
from tests.support.small_models import TEMPERATURE, largest_difference, make_model, make_trajectories

RATES = {"wolves": 3e-2, "villagers": 1e-2}
TEAM = {"wolves": {"side": "wolf", "learning_rate": RATES["wolves"]}, "villagers": {"side": "good"}}


def make_config(folder, kind, team=None, learning_rate=RATES["villagers"]):
    ranks = 1 if kind == "adapters" else 2  # adapters on two: tests/end_to_end/test_team.py
    training = dict(ranks=ranks, mini_batch_size=4, micro_batch_size=2, lr_schedule="cosine", lr_warmup_steps=2)
    return WerewolfConfig.model_validate(
        {
            "model": {"path": folder, "lora_rank": 4 if kind == "adapters" else 0},
            "run": {"seed": 7, "steps": 6},
            # With a critic, each policy has one of its own.
            "advantage": {"estimator": "gae" if kind == "adapters" else "grpo"},
            "training": training | {"learning_rate": learning_rate},
            "policies": team or {},
        }
    )


def batch_of(name):
    seed = 1 if name == "wolves" else 2
    trajectories = make_trajectories(9, seed=seed)
    torch.manual_seed(seed)
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
    folder = tmp_path / "alone"
    make_model(folder / "model", tied=True)
    with Engine(make_config(folder / "model", kind, learning_rate=RATES["wolves"])) as engine:
        expected = [updated(engine, "wolves", kind) for _ in range(3)]
        engine.save(folder / "checkpoint", step=3)
        values = engine.values(batch_of("wolves")) if kind == "adapters" else None
        weights = exported(engine, folder / "exported")
    with Engine(make_config(folder / "model", kind, TEAM)) as engine:
        first = engine.log_probs(batch_of("wolves"))  # the first of the team is at work
        engine.select("villagers")
        assert largest_difference(engine.log_probs(batch_of("wolves")), first) == 0  # all begin alike
        villagers = exported(engine, tmp_path / "villagers")

        engine.select("wolves")
        metrics = [updated(engine, "wolves", kind)]
        assert metrics[0]["actor/lr"] == 0  # the schedule's first step
        engine.select("villagers")
        assert (
            largest_difference(engine.log_probs(batch_of("wolves")), first) == 0
        )  # and what was in use before is gone
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
        engine.select("villagers")
        assert same(exported(engine, tmp_path / "villagers"), villagers) and not same(villagers, weights)
        if kind == "adapters":
            engine.export_adapters(tmp_path / "adapters")
            assert (tmp_path / "adapters" / "adapter_config.json").is_file()

        assert engine.load(tmp_path / "checkpoint") == 2
        engine.select("wolves")
        again = updated(engine, "wolves", kind)
        assert again == expected[2] and same(exported(engine, tmp_path / "wolves"), weights)
        engine.select("villagers")
        assert same(exported(engine, tmp_path / "villagers"), villagers)

        with pytest.raises(ConfigError, match=r"written with the policies that learn \(policies\)=\['policy'\], but"):
            engine.load(folder / "checkpoint")
    assert (tmp_path / "checkpoint" / "wolves" / "policy").is_dir() and (folder / "checkpoint" / "policy").is_dir()
