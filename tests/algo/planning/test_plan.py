"""A plan's figures: counted by hand, held against measured memory on CPU, and refused with the setting to change."""

import json
import math
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import torch
from small_models import TEMPERATURE, make_trajectories
from transformers import AutoConfig, Qwen3Config, Qwen3ForCausalLM

from algo.planning.machine import GIB, H100_GIB, Machine, this_machine
from algo.planning.memory import CPU_RANK, host, passes, states
from algo.planning.model_shape import shape_of
from algo.planning.plan import make_plan
from algo.sequences.batch import build_batch
from algo.training.engine import Engine
from configs.loading import load_config
from configs.section import ConfigError
from configs.serving import FrozenPolicyConfig

H100 = Machine(8, H100_GIB, 1000.0, flops=7e14, bandwidth=3e12)


@pytest.fixture(scope="module")
def qwen3_8b(tmp_path_factory):
    """Its config.json alone."""
    folder = tmp_path_factory.mktemp("plan") / "Qwen3-8B"
    layers = dict(hidden_size=4096, intermediate_size=12288, num_hidden_layers=36, head_dim=128)
    heads = dict(num_attention_heads=32, num_key_value_heads=8)
    Qwen3Config(vocab_size=151936, tie_word_embeddings=False, **layers, **heads).save_pretrained(folder)
    return folder


def planned(configuration, model, *overrides, machine=H100, **options):
    config = load_config(Path(f"configs/{configuration}.yaml"), [f"model.path={model}", *overrides])
    return config, make_plan(config, machine, **options)


def gib_of(plan, phase):
    (found,) = (each for each in plan.phases if each.name == phase)
    return {part.name: part.bytes_ / GIB for part in found.parts}


def test_the_sizes_of_qwen3_8b(qwen3_8b):
    config, plan = planned("qwen3_8b", qwen3_8b)
    assert plan.shape.parameters == 8_190_735_360 and plan.shape.kv_per_token == 73_728
    updating = gib_of(plan, "a GPU while updating")
    whole = 8_190_735_360 * 4 / GIB  # 30.5 GiB
    assert updating["weights"] == updating["gradients"] == pytest.approx(whole / 8)
    assert updating["Adam's moments"] == pytest.approx(2 * whole / 8)
    # What the cache has room for: 0.75 of the GPU less the weights and the graphs.
    room = 0.75 * H100_GIB - 8_190_735_360 * 2 / GIB - 1.5
    assert plan.kv_tokens == pytest.approx(room * GIB / (2 * 73_728))
    assert plan.seconds["play"] > 1 and plan.seconds["update"] > 1
    plan.check(config)


def test_adapters_leave_gradients_and_moments_to_themselves(qwen3_8b):
    config, plan = planned("lora", qwen3_8b)
    updating = gib_of(plan, "a GPU while updating")
    # Rank 32 on seven linear layers of each of 36.
    adapters = 32 * 36 * ((4096 + 4096) * 2 + (4096 + 1024) * 2 + (4096 + 12288) * 3)
    assert plan.shape.adapters == adapters
    assert updating["weights"] == pytest.approx((2 * 8_190_735_360 + 4 * adapters) / GIB)
    assert updating["gradients"] == pytest.approx(4 * adapters / GIB)
    plan.check(config)


@pytest.mark.parametrize(
    ("configuration", "overrides", "options", "message"),
    [
        # As the configuration stood: a ninth vLLM on a GPU beside one that takes most of it.
        ("qwen3_8b", [], {"frozen": [FrozenPolicyConfig(path="any")] * 2}, "a GPU while playing would hold .*frozen"),
        ("one_gpu", [], {}, r"a GPU while updating would hold 1\d\d\.\d GiB.*training\.optimizer_offload"),
        ("qwen3_8b", ["serving.gpu_memory_utilization=0.22"], {}, r"room for \d+ tokens.*gpu_memory_utilization"),
        ("qwen3_8b", [], {"machine": Machine(8, H100_GIB, 250.0, 1.0, 1.0)}, "the machine would hold 292.*has 250"),
        ("qwen3_8b", ["training.sequence_parallel=1", "training.micro_batch_size=16"], {}, "lower|max_sequence_tokens"),
    ],
)
def test_what_cannot_fit_is_refused_with_the_setting_to_change(qwen3_8b, configuration, overrides, options, message):
    config, plan = planned(configuration, qwen3_8b, *overrides, **options)
    with pytest.raises(ConfigError, match=message):
        plan.check(config)


def test_gpus_that_are_elsewhere_refuse_nothing(qwen3_8b):
    assert this_machine("cuda", "bfloat16").gpu_gib == math.inf or torch.cuda.is_available()
    config, plan = planned("one_gpu", qwen3_8b, machine=Machine(0, math.inf, math.inf, 1.0, 1.0))
    plan.check(config)


def test_the_command_says_what_does_not_fit(tiny_model):
    command = [sys.executable, "-m", "algo.plan", "--set", f"model.path={tiny_model}", "--host-gib"]
    fits, refused = (subprocess.run([*command, gib], capture_output=True, text=True) for gib in ("64", "1"))
    assert fits.returncode == 0 and "KV cache of a server" in fits.stdout, fits.stderr
    assert refused.returncode == 2 and "the machine would hold" in refused.stderr


@pytest.mark.e2e
def test_measured_memory_of_a_rank_on_cpu_is_the_planned_within_15_percent(tmp_path, tiny_tokenizer):
    """The highest of one training rank's process through an update of long sequences."""
    shape = dict(hidden_size=512, intermediate_size=1536, num_hidden_layers=12, num_attention_heads=8, head_dim=64)
    settings = Qwen3Config(vocab_size=32_000, num_key_value_heads=4, tie_word_embeddings=False, **shape)
    Qwen3ForCausalLM(settings).save_pretrained(tmp_path / "model")
    tiny_tokenizer.save_pretrained(tmp_path / "model")
    settings = ["training.micro_batch_size=2", "training.max_sequence_tokens=1024", "rollout.context_tokens=1024"]
    config = load_config(None, [f"run.dir={tmp_path}", f"model.path={tmp_path / 'model'}", *settings])
    (short,) = make_trajectories(1)
    times = 1024 // len(short.token_ids)
    long = [
        type(short)(**{**vars(short), "task_id": f"{n}", **{
            name: getattr(short, name) * times for name in ("token_ids", "loss_mask", "logprobs")
        }, "turn_ends": (len(short.token_ids) * times,), "turn_versions": (0,)})
        for n in range(4)
    ]  # fmt: skip
    advantages = [torch.ones(len(row.token_ids)) for row in long]
    with Engine(config) as engine:
        engine.update(build_batch(long, advantages, temperature=TEMPERATURE))
        (rank,) = (p for p in psutil.process_iter(["name"]) if "TrainingRank" in (p.info["name"] or ""))
        status = Path(f"/proc/{rank.pid}/status").read_text()
    measured = 1024 * int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")))
    found = shape_of(config.model.path, config.model)
    parts = {part.name: part.bytes_ / GIB for part in [*states(config, found), *passes(config, found)]}
    planned = CPU_RANK + sum(parts.values()) * GIB
    print(json.dumps({"measured": measured / GIB, "planned": planned / GIB, "parts": parts}))
    assert planned == pytest.approx(measured, rel=0.15)
    assert sum(part.bytes_ for part in host(config, found, 1)) > planned
    assert AutoConfig.from_pretrained(config.model.path).vocab_size == 32_000
