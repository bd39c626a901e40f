"""A plan's figures: counted by hand, and refused with the setting to change; measured by `make gpu`."""

import pytest
from transformers import Qwen3Config

from algo.plan import H100_GIB
from algo.run.memory_plan import GIB, make_plan, other_servers, pass_parts
from algo.serving.launch import policy_launches
from algo.training.chunked_head import CHUNK_ELEMENTS
from configs.loading import load_config
from configs.section import ConfigError
from configs.sections.serving import FrozenPolicyConfig
from configs.werewolf import WerewolfConfig


@pytest.fixture(scope="module")
def qwen3_8b(tmp_path_factory):
    """Its config.json alone."""
    folder = tmp_path_factory.mktemp("plan") / "Qwen3-8B"
    layers = dict(hidden_size=4096, intermediate_size=12288, num_hidden_layers=36, head_dim=128)
    heads = dict(num_attention_heads=32, num_key_value_heads=8)
    Qwen3Config(vocab_size=151936, tie_word_embeddings=False, **layers, **heads).save_pretrained(folder)
    return folder


def planned(configuration, model, *overrides, schema=WerewolfConfig, gpu_gib=H100_GIB, host_gib=1000.0, **options):
    config = load_config(configuration, [f"model.path={model}", *overrides], schema)
    return config, make_plan(config, gpu_gib=gpu_gib, host_gib=host_gib, **options)


def gib_of(plan, name):
    return {part.partition(" (")[0]: needed / GIB for part, needed in plan.memories[name].items() if needed}


def test_the_sizes_of_qwen3_8b(qwen3_8b):
    config, plan = planned("qwen3_8b_shared", qwen3_8b)
    assert plan.shape.parameters == 8_190_735_360 and plan.shape.kv == 73_728
    updating = gib_of(plan, "a GPU during updates")
    whole = 8_190_735_360 * 4 / GIB  # 30.5 GiB
    assert updating["weights"] == updating["gradients"] == pytest.approx(whole / 8)
    assert updating["Adam's moments"] == pytest.approx(2 * whole / 8)
    # Of 6,656 tokens: what one layer keeps, and of each its input.
    kept, head = 6 * 4096 + 3 * (32 + 2 * 8) * 128 + 4 * 12288, 151936 * 4096
    assert updating["activations"] == pytest.approx(2 * 6656 * (kept + 36 * 4096) / GIB)
    assert updating["logits"] == pytest.approx(16 * (CHUNK_ELEMENTS + 6656) / GIB)
    assert updating["the head's gradient"] == pytest.approx((4 + 2) * head / GIB)
    layer = (8_190_735_360 - 2 * head - 4096) / 36
    assert updating["gathered layers"] == pytest.approx(2 * (2 * layer + head) / GIB)
    # What the cache has room for: 0.75 of the GPU less the weights and the graphs.
    room = 0.75 * H100_GIB - 8_190_735_360 * 2 / GIB - 1.5
    assert plan.kv_tokens == pytest.approx(room * GIB / (2 * 73_728))
    plan.check(config)

    config, plan = planned("qwen3_8b", qwen3_8b)
    assert [*plan.memories] == ["the machine", "a training GPU", "a serving GPU"]
    assert gib_of(plan, "a training GPU")["weights"] == pytest.approx(whole / 5)
    assert gib_of(plan, "the machine")["KV cache kept here"] == 3 * 150
    plan.check(config)

    config, plan = planned("lora", qwen3_8b)
    updating = gib_of(plan, "a GPU during updates")
    # Rank 32 on seven linear layers of each of 36.
    adapters = 32 * 36 * ((4096 + 4096) * 2 + (4096 + 1024) * 2 + (4096 + 12288) * 3)
    assert plan.shape.adapters == adapters
    assert updating["weights"] == pytest.approx((2 * 8_190_735_360 + 4 * adapters) / GIB)
    assert updating["gradients"] == pytest.approx(4 * adapters / GIB)
    plan.check(config)

    # On CPU nothing is computed anew, and sequences are padded.
    lengths = ["training.micro_batch_size=2", "training.max_sequence_tokens=256", "rollout.context_tokens=256"]
    on_cpu = load_config(None, [f"model.path={qwen3_8b}", "rollout.reply_tokens=16", *lengths], WerewolfConfig)
    activations, *_ = pass_parts(on_cpu, plan.shape).values()
    assert activations == 4 * (2 * 256 * kept * 36 + 2 * 256**2)

    config, plan = planned("one_gpu", qwen3_8b, gpu_gib=None, host_gib=None)  # GPUs elsewhere refuse nothing
    plan.check(config)
    assert "inf" not in plan.table(config, 7)


NINTH_VLLM = {"frozen": [FrozenPolicyConfig(path="any")] * 2}


@pytest.mark.parametrize(
    ("configuration", "overrides", "options", "message"),
    [
        ("qwen3_8b_shared", [], NINTH_VLLM, "a GPU during rollouts needs .*frozen"),
        ("one_gpu", [], {}, r"a GPU during updates needs 1\d\d\.\d GiB.*training\.optimizer_offload"),
        (
            "qwen3_8b_shared",
            ["serving.gpu_memory_utilization=0.22"],
            {},
            r"room for \d+ tokens.*gpu_memory_utilization",
        ),
        ("qwen3_8b_shared", [], {"host_gib": 250.0}, "the machine needs 292.*has 250"),
        (
            "qwen3_8b_shared",
            ["training.sequence_parallel=1", "training.micro_batch_size=16"],
            {},
            "max_sequence_tokens",
        ),
    ],
)
def test_what_cannot_fit_is_refused_with_the_setting_to_change(qwen3_8b, configuration, overrides, options, message):
    config, plan = planned(configuration, qwen3_8b, *overrides, **options)
    with pytest.raises(ConfigError, match=message):
        plan.check(config)


@pytest.mark.parametrize("adapters", [0, 32])
def test_several_policies_that_learn_are_counted(qwen3_8b, adapters):
    """What each keeps while another one is at work; and, of whole weights, a vLLM for each."""
    team = "policies={wolves: {side: wolf}, villagers: {side: good}}"
    own = [f"model.lora_rank={adapters}", "serving.servers=1", "serving.share_gpus=false", "training.ranks=4"]
    own.append("serving.weight_transfer=folder")
    _, before = planned("qwen3_8b", qwen3_8b, *own, "serving.devices=[7]")
    config, plan = planned("qwen3_8b", qwen3_8b, *own, "serving.devices=[7]", team)
    kept = gib_of(plan, "the machine")["policies not at work"]
    assert kept == pytest.approx(2 * 12 * (plan.shape.adapters if adapters else plan.shape.parameters) / GIB)
    assert "policies not at work" not in gib_of(before, "the machine")
    assert len(other_servers(config, [])) == (0 if adapters else 1)
    own_gpu, _ = planned("qwen3_8b", qwen3_8b, *own, "serving.devices=null", team)
    assert [server.devices for server in other_servers(own_gpu, [])] == ([] if adapters else [(1,)])
    launches = [policy_launches(own_gpu, member)[0] for member in own_gpu.team]
    assert [(launch.port, launch.log_name) for launch in launches] == [
        (8000, "vllm-wolves.log"), (8001, "vllm-villagers.log"),
    ]  # fmt: skip
