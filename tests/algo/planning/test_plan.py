"""A plan's figures: counted by hand, held against measured memory on CPU, and refused with the setting to change."""

import math
import subprocess
import sys
from pathlib import Path

import pytest
from transformers import Qwen3Config, Qwen3ForCausalLM

from algo.plan import main
from algo.planning.machine import GIB, H100_GIB, Machine
from algo.planning.memory import passes, states
from algo.planning.model_shape import shape_of
from algo.planning.plan import make_plan
from algo.planning.seconds import Lengths
from algo.serving.launch import member_servers, policy_launches, pool_servers
from algo.werewolf.tasks import policy_seats
from configs.agents import AgentConfig
from configs.loading import load_config
from configs.section import ConfigError
from configs.sections.serving import FrozenPolicyConfig
from configs.werewolf import WerewolfConfig
from tests.support.algo.learning_folders import write_steps

H100 = Machine(8, H100_GIB, 1000.0, flops=7e14, bandwidth=3e12)


@pytest.fixture(scope="module")
def qwen3_8b(tmp_path_factory):
    """Its config.json alone."""
    folder = tmp_path_factory.mktemp("plan") / "Qwen3-8B"
    layers = dict(hidden_size=4096, intermediate_size=12288, num_hidden_layers=36, head_dim=128)
    heads = dict(num_attention_heads=32, num_key_value_heads=8)
    Qwen3Config(vocab_size=151936, tie_word_embeddings=False, **layers, **heads).save_pretrained(folder)
    return folder


def planned(configuration, model, *overrides, machine=H100, schema=WerewolfConfig, **options):
    config = load_config(Path(f"configs/{configuration}.yaml"), [f"model.path={model}", *overrides], schema)
    return config, make_plan(config, machine, **options)


def gib_of(plan, phase):
    (found,) = (each for each in plan.phases if each.name == phase)
    return {part.name: part.bytes_ / GIB for part in found.parts}


def test_the_sizes_of_qwen3_8b(qwen3_8b):
    config, plan = planned("qwen3_8b_shared", qwen3_8b)
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


def test_servers_of_past_selves_are_counted(qwen3_8b):
    pool = ["game.opponent=past", "league.every_steps=1", "league.servers=2", "league.gpu_memory_utilization=0.25"]
    overrides = [*pool, "league.devices=[5, 6]"]
    config, _ = planned("qwen3_8b_shared", qwen3_8b, *overrides)
    _, plan = planned("qwen3_8b_shared", qwen3_8b, *overrides, frozen=pool_servers(config))
    before = planned("qwen3_8b_shared", qwen3_8b)[1]
    for phase in ("a GPU while playing", "a GPU while updating"):
        more = gib_of(plan, phase).pop("frozen policies")
        assert more == pytest.approx(0.25 * H100_GIB) and "frozen policies" not in gib_of(before, phase)
    config, plan = planned("tiny_cpu", qwen3_8b, *pool, frozen=pool_servers(config))
    assert gib_of(plan, "the machine")["frozen policies"] > 2 * 1.1

    config, plan = planned("lora", qwen3_8b, *pool[:2])
    alone = gib_of(planned("lora", qwen3_8b)[1], "a GPU while playing")["vLLM's adapters"]
    assert pool_servers(config) == []
    assert gib_of(plan, "a GPU while playing")["vLLM's adapters"] == pytest.approx(alone * 5)


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
        (
            "qwen3_8b_shared",
            [],
            {"frozen": [FrozenPolicyConfig(path="any")] * 2},
            "a GPU while playing would hold .*frozen",
        ),
        ("one_gpu", [], {}, r"a GPU while updating would hold 1\d\d\.\d GiB.*training\.optimizer_offload"),
        (
            "qwen3_8b_shared",
            ["serving.gpu_memory_utilization=0.22"],
            {},
            r"room for \d+ tokens.*gpu_memory_utilization",
        ),
        (
            "qwen3_8b_shared",
            [],
            {"machine": Machine(8, H100_GIB, 250.0, 1.0, 1.0)},
            "the machine would hold 292.*has 250",
        ),
        (
            "qwen3_8b_shared",
            ["training.sequence_parallel=1", "training.micro_batch_size=16"],
            {},
            "lower|max_sequence_tokens",
        ),
    ],
)
def test_what_cannot_fit_is_refused_with_the_setting_to_change(qwen3_8b, configuration, overrides, options, message):
    config, plan = planned(configuration, qwen3_8b, *overrides, **options)
    with pytest.raises(ConfigError, match=message):
        plan.check(config)


def test_serving_and_training_have_gpus_of_their_own(qwen3_8b):
    config, plan = planned("qwen3_8b", qwen3_8b)
    assert [phase.name for phase in plan.phases] == ["the machine", "a training GPU", "a serving GPU"]
    assert gib_of(plan, "a training GPU")["weights"] == pytest.approx(8_190_735_360 * 4 / GIB / 5)
    assert gib_of(plan, "the machine")["KV cache kept here"] == 3 * 150
    plan.check(config)


def test_gpus_that_are_elsewhere_refuse_nothing(qwen3_8b):
    config, plan = planned("one_gpu", qwen3_8b, machine=Machine(0, math.inf, math.inf, 1.0, 1.0))
    plan.check(config)


def test_frozen_policies_count_where_they_are_served(qwen3_8b):
    """The customer of the airline has the eighth GPU; on the agent's first one it would not fit."""

    def airline(gpu):
        options = f"frozen.user.path={qwen3_8b}", f"frozen.user.devices=[{gpu}]"
        frozen = [FrozenPolicyConfig(path=qwen3_8b, devices=[gpu], gpu_memory_utilization=0.85)]
        return planned("agent_tau2_airline", qwen3_8b, *options, schema=AgentConfig, frozen=frozen)

    config, plan = airline(7)
    assert gib_of(plan, "a GPU of frozen policies") == {"frozen policies": pytest.approx(0.85 * H100_GIB)}
    plan.check(config)
    config, plan = airline(0)
    with pytest.raises(ConfigError, match=r"a GPU while playing would hold .*frozen"):
        plan.check(config)


@pytest.mark.parametrize(
    ("configuration", "seats"), [("tiny_cpu", 5), ("demo", 2.5), ("learn_good", 4), ("qwen3_8b", 12)]
)
def test_the_seats_that_the_policy_plays_are_those_of_the_sides_that_learn(configuration, seats):
    assert policy_seats(load_config(Path(f"configs/{configuration}.yaml")).game) == seats


def test_a_warm_start_is_planned_without_a_server(qwen3_8b):
    config, plan = planned("one_gpu", qwen3_8b, serves=False)
    assert [phase.name for phase in plan.phases] == ["the machine", "a training GPU"]
    assert not {name for phase in plan.phases for name in gib_of(plan, phase.name) if "vLLM" in name}
    with pytest.raises(ConfigError, match="a training GPU would hold"):
        plan.check(config)
    # No cache is asked of whoever serves nothing.
    _, plan = planned("one_gpu", qwen3_8b, "serving.gpu_memory_utilization=0.1", serves=False)
    assert plan.sequences == math.inf


def test_the_command_says_what_does_not_fit(tiny_model, capsys):
    def run(gib):
        return main(["--set", f"model.path={tiny_model}", "--host-gib", gib]), capsys.readouterr()

    status, printed = run("64")
    assert status == 0 and "KV cache of a server" in printed.out
    status, printed = run("1")
    assert status == 2 and "the machine would hold" in printed.err


def test_a_run_tells_how_long_its_sequences_are_and_how_long_its_steps_took(tiny_model, tmp_path, capsys):
    counts = {"games/finished": 4.0, "tokens/sequences": 10.0, "tokens/total": 2000.0, "tokens/sampled": 100.0}
    (tmp_path / "run").mkdir()
    write_steps(tmp_path / "run", [counts | {"seconds/play": 6.0}, counts | {"seconds/play": 8.0, "seconds/push": 1.0}])
    model = ["--set", f"model.path={tiny_model}", "--host-gib", "64"]
    assert main([*model, "--run", str(tmp_path / "run")]) == 0
    printed = capsys.readouterr().out
    assert "as in the run: 2.5 a rollout, each of 200 tokens, 10 of them sampled" in printed
    play, push = (next(line for line in printed.splitlines() if f"│ {stage} " in line) for stage in ("play", "push"))
    assert play.split()[-2] == "7.0" and push.split()[-2] == "1.0"
    assert main([*model, "--run", str(tmp_path)]) == 2
    assert "no step of the run has sequences" in capsys.readouterr().err


def test_seconds_follow_from_what_is_played_and_from_the_rates(tiny_model):
    _, plan = planned("tiny_cpu", tiny_model, seats=2)
    _, longer = planned("tiny_cpu", tiny_model, seats=2, lengths=Lengths(2.0, 3072.0, 230.4))
    assert (plan.lengths.tokens, plan.lengths.sampled) == (1536.0, pytest.approx(230.4))
    assert longer.seconds["update"] > 2 * plan.seconds["update"]
    # By hand: 8 rollouts of 2 sequences; the body's weights for every token, the head's for the sampled, and attention.
    shape, tokens = plan.shape, 16 * 1536
    body = shape.parameters - shape.head * (1 if shape.tied else 2)
    forward = 2 * (body * tokens + shape.head * 16 * 230.4) + 2 * 2 * shape.heads * shape.head_size * tokens * 1536
    assert plan.seconds["update"] == pytest.approx((3 + 1) * forward / (0.4 * H100.flops))
    assert "a step on H100s" not in plan.in_a_line() and "update" in plan.in_a_line()


PASSES = """
import sys
from pathlib import Path
import torch
from transformers import AutoModelForCausalLM
from algo.training.chunked_head import ChunkedHead

def kib(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(name)))

torch.set_num_threads(1)
before = kib("VmRSS")
model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32).train()
head = ChunkedHead(model.get_output_embeddings())
model.set_output_embeddings(head)
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(2):
    for _ in range(2):  # the second passes find the first ones' gradients
        ids = torch.randint(0, 1000, (2, 256))
        head.expect(ids, torch.ones(2, 256), False)
        model(input_ids=ids, use_cache=False).logits[..., 0].sum().backward()
    optimizer.step()
    optimizer.zero_grad()
print(1024 * (kib("VmHWM") - before))
"""


def test_measured_memory_of_an_update_on_cpu_is_the_planned_within_15_percent(tmp_path):
    """What a process takes beyond itself for two optimizer steps of a model of 70M weights, at its highest: several
    micro-batches a step, as runs have them, so that gradients and activations are there at once."""
    shape = dict(hidden_size=512, intermediate_size=1536, num_hidden_layers=12, num_attention_heads=8, head_dim=64)
    settings = Qwen3Config(vocab_size=32_000, num_key_value_heads=4, tie_word_embeddings=False, **shape)
    Qwen3ForCausalLM(settings).save_pretrained(tmp_path)
    # The larger of two: pages of the model's file that a busy machine takes back are missing from a peak.
    measured = max(int(subprocess.check_output([sys.executable, "-c", PASSES, tmp_path])) for _ in range(2))
    lengths = ["training.micro_batch_size=2", "training.max_sequence_tokens=256", "rollout.context_tokens=256"]
    config = load_config(None, [f"model.path={tmp_path}", "rollout.reply_tokens=16", *lengths], WerewolfConfig)
    found = shape_of(tmp_path, config.model)
    planned = sum(part.bytes_ for part in [*states(config, found), *passes(config, found)])
    assert planned == pytest.approx(measured, rel=0.15)


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
    assert len(member_servers(config)) == (0 if adapters else 1)
    own_gpu, _ = planned("qwen3_8b", qwen3_8b, *own, "serving.devices=null", team)
    assert [server.devices for server in member_servers(own_gpu)] == ([] if adapters else [(1,)])
    launches = [policy_launches(own_gpu, member)[0] for member in own_gpu.team]
    assert [(launch.port, launch.log_name) for launch in launches] == [
        (8000, "vllm-wolves.log"), (8001, "vllm-villagers.log"),
    ]  # fmt: skip
