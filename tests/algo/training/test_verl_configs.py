"""What verl is told where a run would need GPUs to show it, and what is refused before Ray starts."""

import json
import os
import shutil

import pytest
import ray
import torch
from transformers import Gemma3TextConfig
from verl.workers.config import FSDPOptimizerConfig

from algo.advantages.credit import kl_in_reward
from algo.training import ray_cluster, verl_configs
from algo.training.ray_cluster import training_gpus
from algo.training.verl_configs import actor_config, check_engine, critic_config, part_configs
from algo.werewolf.imitation import imitation_config
from configs.section import ConfigError
from configs.sections.training import ReferenceConfig, TrainingConfig
from configs.werewolf import WerewolfConfig
from tests.support.small_models import make_model


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make_model(tmp_path_factory.mktemp("verl_configs") / "model", tied=False)


def make_config(folder, **sections):
    sections["model"] = {"path": folder} | sections.get("model", {})
    return WerewolfConfig.model_validate(sections)


def test_settings_for_gpus_reach_verl(model):
    config = make_config(
        model,
        model={"dtype": "bfloat16", "attn_implementation": "flash_attention_2"},
        training={
            "device": "cuda",
            "ranks": 4,
            "sequence_parallel": 2,
            "param_offload": True,
            "optimizer_offload": True,
        },
        advantage={"estimator": "gae"},
        reference={"kl": "loss"},
    )
    parts = part_configs(config)
    for part in (parts.policy, parts.reference, parts.critic):
        assert part.engine_config.ulysses_sequence_parallel_size == 2
        assert part.engine_config.param_offload and part.engine_config.optimizer_offload
        assert part.engine_config.mixed_precision["param_dtype"] == "bfloat16"
        assert part.model_config.use_remove_padding
        assert part.model_config.hf_config._attn_implementation == "flash_attention_2"
        # Left open, activations are computed anew on GPUs.
        assert part.model_config.enable_gradient_checkpointing
    assert [part.engine_config.forward_only for part in (parts.policy, parts.reference, parts.critic)] == [
        False,
        True,
        False,
    ]
    assert (parts.policy.model_type, parts.critic.model_type) == ("language_model", "value_model")


def test_a_run_has_the_parts_that_it_needs(model):
    plain = part_configs(make_config(model))
    assert plain.reference is None and plain.critic is None
    lora = {"model": {"lora_rank": 4}, "reference": {"kl": "loss"}, "advantage": {"estimator": "gae"}}
    parts = part_configs(make_config(model, **lora))
    # The reference is the policy without its adapters; the critic is trained whole.
    assert parts.reference is None
    assert (parts.policy.model_config.lora_rank, parts.critic.model_config.lora_rank) == (4, 0)
    lora["reference"]["path"] = make_model(model.with_name("other"), tied=False)
    parts = part_configs(make_config(model, **lora))
    assert parts.reference.model_config.path == str(lora["reference"]["path"])
    assert parts.reference.model_config.lora_rank == 0
    sgd = FSDPOptimizerConfig(optimizer="SGD", lr=0.5)
    assert part_configs(make_config(model), sgd).policy.optimizer_config is sgd


def test_what_cannot_run_is_refused(model, tmp_path, monkeypatch):
    gpus = {"device": "cuda", "ranks": 3}
    with pytest.raises(ConfigError, match=r"sequence_parallel=3 needs model\.attn_implementation=flash_attention_2"):
        check_engine(make_config(model, training=gpus | {"sequence_parallel": 3}))
    flash = {"attn_implementation": "flash_attention_2"}
    for installed, device in ((None, "cuda"), ("a module", "cpu")):
        monkeypatch.setattr(verl_configs, "find_spec", {"flash_attn": installed}.get)
        with pytest.raises(ConfigError, match=r"needs GPUs and flash-attn \(pip install .*set it to sdpa"):
            check_engine(make_config(model, model=flash, training={"device": device}))
    with pytest.raises(ConfigError, match=r"must divide the model's number of attention heads \(2\)"):
        check_engine(make_config(model, model=flash, training=gpus | {"sequence_parallel": 3}))
    check_engine(make_config(model, model=flash, training=gpus | {"ranks": 2, "sequence_parallel": 2}))
    sizes = json.loads((model / "config.json").read_text())
    few = shutil.copytree(model, tmp_path / "few")
    (few / "config.json").write_text(json.dumps(sizes | {"num_attention_heads": 12, "num_key_value_heads": 2}))
    with pytest.raises(ConfigError, match=r"key-value heads \(2\)"):
        check_engine(make_config(few, model=flash, training=gpus | {"ranks": 3, "sequence_parallel": 3}))
    for section, kl in (("reference", {"kl": "loss"}), ("critic", {})):
        with pytest.raises(ConfigError, match=rf"{section}\.path .*nowhere does not exist.*set {section}\.path"):
            check_engine(make_config(model, **{section: {"path": tmp_path / "nowhere", **kl}}))
    other = shutil.copytree(model, tmp_path / "other")
    (other / "config.json").write_text(Gemma3TextConfig(num_hidden_layers=1).to_json_string())
    for gae in ({"model": {"path": other}}, {"critic": {"path": other}}):
        with pytest.raises(ConfigError, match="gae needs a critic, and transformers makes none of gemma3_text"):
            check_engine(make_config(model, advantage={"estimator": "gae"}, **gae))
    for name in ("geo_mean", "clip_cov", "kl_cov", "bypass_mode", "dro"):
        with pytest.raises(ConfigError, match=f"'{name}' cannot be used"):
            actor_config(TrainingConfig(policy_loss=name))
    # Only this mode divides by a scale, which is not to depend on a micro-batch.
    scaled = {"loss_agg_mode": "seq-mean-token-sum-norm", "max_sequence_tokens": 9000}
    config = make_config(model, training=scaled)
    assert actor_config(config.training).loss_scale_factor == critic_config(config).loss_scale_factor == 9000


@pytest.mark.parametrize(
    ("serving", "expected"),
    [
        ({}, "1,2,3"),
        ({"servers": 2, "devices": (3, 1)}, "0,2"),
        ({"tensor_parallel": 2}, "2,3"),
        ({"share_gpus": True}, "0,1,2,3"),
        ({"share_gpus": True, "devices": (2,)}, "2,0,1,3"),
        ({"mode": "attach", "urls": ["http://127.0.0.1:1"]}, "0,1,2,3"),
    ],
)
def test_training_takes_the_gpus_that_serving_leaves_free(model, monkeypatch, serving, expected):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    config = make_config(model, training={"device": "cuda"}, serving=serving)
    assert training_gpus(config) == expected
    assert training_gpus(make_config(model)) is None
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4, 5,6,7")
    assert training_gpus(config) == expected.translate(str.maketrans("0123", "4567"))


def test_training_leaves_the_gpus_of_all_other_servers_alone(model, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-a,GPU-b,GPU-c,GPU-d")

    def gpus(**sections):
        return training_gpus(make_config(model, training={"device": "cuda"}, **sections))

    assert gpus(policies={"wolves": {"side": "wolf"}, "villagers": {"side": "good"}}) == "GPU-c,GPU-d"
    others = {"frozen": {"old": {"path": model, "devices": (3,)}}}
    assert gpus(**others) == "GPU-b,GPU-c"
    others |= {"league": {"every_steps": 1, "devices": (1,)}, "game": {"opponent": "past"}}
    assert gpus(**others) == "GPU-c"
    # An imitation serves nothing any more.
    imitation = imitation_config(make_config(model, training={"device": "cuda"}, **others), steps=1)
    assert training_gpus(imitation) == "GPU-a,GPU-b,GPU-c,GPU-d"
    # On shared GPUs other servers may run beside those of the policy.
    assert gpus(serving={"share_gpus": True, "servers": 2}, **others) == "GPU-a,GPU-b,GPU-c"


@pytest.mark.parametrize("given", [None, "4,5"])
def test_only_ray_is_limited_to_the_gpus_of_the_training(model, monkeypatch, tmp_path, given):
    monkeypatch.setattr(os, "environ", {} if given is None else {"CUDA_VISIBLE_DEVICES": given})
    monkeypatch.setattr("tempfile.mkdtemp", lambda **_: str(tmp_path))
    monkeypatch.setattr(ray_cluster, "_token_file", lambda: tmp_path)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    seen = []
    monkeypatch.setattr(ray, "init", lambda **_: seen.append(os.environ["CUDA_VISIBLE_DEVICES"]))
    ray_cluster.connect(make_config(model, training={"device": "cuda"}))
    assert seen == ["1" if given is None else "5"]
    assert os.environ.get("CUDA_VISIBLE_DEVICES") == given


def test_the_kl_in_the_reward_is_the_estimate_times_its_weight():
    rows, reference = [torch.tensor([-1.0, -2.0]), torch.tensor([-3.0])], [torch.tensor([-1.5, -2.0]), torch.zeros(1)]

    def penalties(name):
        settings = ReferenceConfig(kl="reward", coef=0.5, penalty=name)
        return [row.tolist() for row in kl_in_reward(rows, reference, settings)]

    assert penalties("k1") == penalties("kl") == [[0.25, 0], [-1.5]]
    assert penalties("abs") == [[0.25, 0], [1.5]]
    assert penalties("k2") == penalties("mse") == [[0.0625, 0], [2.25]]
    assert penalties("k3")[0] == pytest.approx([0.5 * (0.6065307 + 0.5 - 1), 0])
