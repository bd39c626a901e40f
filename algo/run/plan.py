"""The memory that a run needs, by part, against what its GPUs and its machine have: what cannot fit is refused.

Weights, gradients, Adam's moments and the KV cache are counted from the model's config.json; what frameworks take for
themselves is a constant. ``tests/algo/run/test_plan.py`` compares the sums with measured ones on CPU. Parts are
dictionaries, name -> bytes.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import psutil
import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM

from algo.advantages.registry import needs_values
from algo.serving.launch import later_adapters
from algo.training.chunked_head import CHUNK_ELEMENTS
from algo.training.verl_configs import packs_sequences, reference_without_adapters
from configs.schema import Config
from configs.section import ConfigError
from configs.sections.serving import FrozenPolicyConfig
from configs.sections.training import ModelConfig

GIB = 2**30
BYTES = {"float32": 4, "bfloat16": 2}
CUDA_CONTEXT = 1.2 * GIB  # CUDA's context, kernels and NCCL's buffers of a process on a GPU
VLLM_GRAPHS = 1.5 * GIB  # vLLM's CUDA graphs and its forward pass of 8,192 tokens, for models up to 8B
CPU_RANK, CPU_VLLM = 0.75 * GIB, 1.1 * GIB  # processes on CPU without models and caches

_FEWER_TOKENS = "training.max_sequence_tokens, training.max_tokens_per_micro_batch, training.micro_batch_size"
SETTINGS = {
    "weights": "training.param_offload, training.ranks, model.lora_rank",
    "gradients": "training.ranks, model.lora_rank",
    "Adam's moments": "training.optimizer_offload, training.ranks, model.lora_rank",
    "critic": "advantage.estimator, training.ranks",
    "reference": "reference.kl",
    "activations": f"{_FEWER_TOKENS}, training.sequence_parallel, training.gradient_checkpointing",
    "the head's gradient": "model.lora_rank",
    "vLLM's weights": "serving.tensor_parallel",
    "vLLM's adapters": "model.lora_rank",
    "KV cache": "serving.kv_cache_gb (CPU), serving.gpu_memory_utilization (GPU)",
    "frozen policies": "league.servers, frozen, policies",
    "policies not at work": "policies, model.lora_rank",
    "weights kept here": "training.ranks",
    "Adam's moments kept here": "training.ranks",
    "loading": "training.ranks",
    "vLLM's weights asleep": "serving.servers",
    "KV cache kept here": "serving.kv_offload_gb",
}
"""Part -> the settings that decide its size, in the order in which to try them."""


@dataclass(frozen=True)
class Shape:
    """Sizes of a model in numbers of weights. parameters: all, tied ones once. head: the output head. layer: the
    largest decoder layer. kept: inputs of one layer's modules for one token, which autograd keeps. kv: of the KV cache
    for one token. adapters: of LoRA."""

    parameters: int
    head: int
    layer: int
    kept: int
    kv: int
    adapters: int
    layers: int
    hidden: int
    words: int
    tied: bool


@dataclass(frozen=True)
class Memory:
    """What is in one memory at the same time. capacity: bytes; infinite where it is not known."""

    name: str
    capacity: float
    parts: dict[str, float]

    @property
    def needed(self) -> float:
        """Bytes."""
        return sum(self.parts.values())

    def __str__(self) -> str:
        of = f" of {self.capacity / GIB:.1f}" if math.isfinite(self.capacity) else ""
        return f"{self.name} {self.needed / GIB:.1f}{of} GiB"


@dataclass(frozen=True)
class Plan:
    """memories: the machine, and the fullest GPU of each kind. kv_tokens: that the cache of a server which the run
    starts has room for; infinite where it starts none."""

    shape: Shape
    memories: tuple[Memory, ...]
    kv_tokens: float

    def table(self, config: Config, actors: int) -> str:
        """All parts, for a person. actors: most actors of a rollout that the policy plays."""
        sizes = f"{self.shape.parameters / 1e9:.2f}B weights, {self.shape.adapters / 1e6:.1f}M in adapters"
        lines = [f"{config.model.path}: {sizes}"]
        for memory in self.memories:
            lines += ["", str(memory)]
            for part, needed in sorted(memory.parts.items(), key=lambda part: -part[1]):
                if needed:
                    lines.append(f"  {part:<26}{needed / GIB:8.2f}  {SETTINGS.get(part, '')}".rstrip())
        if math.isfinite(self.kv_tokens):
            tokens = config.rollout.context_tokens
            at_once = config.serving.servers * self.kv_tokens / (actors * tokens)
            sequences = f"{self.kv_tokens / tokens:.1f} sequences of {tokens:,}"
            lines += ["", f"KV cache of a server: {self.kv_tokens:,.0f} tokens, {sequences}"]
            lines.append(f"all {actors} actors of {at_once:,.1f} rollouts at once fit the servers' caches")
        return "\n".join(lines)

    def check(self, config: Config) -> None:
        """Raise ConfigError, with the settings to change, for what cannot fit."""
        for memory in sorted(self.memories, key=lambda memory: memory.capacity - memory.needed):
            if memory.needed > memory.capacity:
                largest = sorted(memory.parts, key=memory.parts.__getitem__, reverse=True)
                shown = ", ".join(f"{part} {memory.parts[part] / GIB:.1f}" for part in largest[:4])
                settings = next(SETTINGS[part] for part in largest if part in SETTINGS)
                raise ConfigError(
                    f"{memory.name} would hold {memory.needed / GIB:.1f} GiB and has {memory.capacity / GIB:.1f}: "
                    f"{shown}. Change {settings}; `python -m algo.plan` shows all parts"
                )
        if self.kv_tokens < config.rollout.context_tokens:
            raise ConfigError(
                f"vLLM's cache would have room for {max(self.kv_tokens, 0):.0f} tokens, and one sequence may have "
                f"{config.rollout.context_tokens}: lower rollout.context_tokens, or raise {SETTINGS['KV cache']}"
            )


def shape_of(model: ModelConfig) -> Shape:
    """The shape of the model, from its config.json alone. Raises OSError where there is none."""
    settings = AutoConfig.from_pretrained(model.path)
    with torch.device("meta"):
        skeleton = AutoModelForCausalLM.from_config(settings)
    head = skeleton.get_output_embeddings()
    decoders = [part for part in skeleton.modules() if type(part).__name__ in (skeleton._no_split_modules or ())]
    names = None if isinstance(model.lora_modules, str) else set(model.lora_modules)
    adapted = [
        part
        for name, part in skeleton.named_modules()
        if isinstance(part, nn.Linear) and part is not head and (names is None or name.rsplit(".")[-1] in names)
    ]
    heads, layers, hidden = settings.num_attention_heads, settings.num_hidden_layers, settings.hidden_size
    kv_heads = getattr(settings, "num_key_value_heads", None) or heads
    head_size = getattr(settings, "head_dim", None) or hidden // heads
    return Shape(
        parameters=sum(weight.numel() for weight in skeleton.parameters()),
        head=head.weight.numel(),
        layer=max((sum(weight.numel() for weight in part.parameters()) for part in decoders), default=0),
        kept=6 * hidden + 3 * (heads + 2 * kv_heads) * head_size + 4 * settings.intermediate_size,
        kv=2 * layers * kv_heads * head_size,
        adapters=model.lora_rank * sum(part.in_features + part.out_features for part in adapted),
        layers=layers,
        hidden=hidden,
        words=settings.vocab_size,
        tied=bool(settings.tie_word_embeddings),
    )


def make_plan(
    config: Config,
    frozen: Sequence[FrozenPolicyConfig] = (),
    *,
    gpu_gib: float | None = None,
    host_gib: float | None = None,
    serves: bool = True,
) -> Plan:
    """Plan the memory of a run.

    frozen: policies that have a vLLM of their own here, taken to be of the trained policy's size.
    gpu_gib, host_gib: memory of each GPU and of the machine; None: of this one, unknown where its GPUs are elsewhere.
    serves: False for a trainer alone (a warm start).
    """
    shape, on_gpus = shape_of(config.model), config.training.device == "cuda"
    starts = serves and config.serving.mode == "start"
    here = torch.cuda.is_available() or not on_gpus
    gpu = gpu_gib * GIB if gpu_gib else torch.cuda.mem_get_info(0)[1] if on_gpus and here else math.inf
    host = host_gib * GIB if host_gib else psutil.virtual_memory().total if here else math.inf
    vllm, kv_tokens = _served(config, shape, gpu)
    machine = _on_machine(config, shape, config.serving.servers if starts else 0, vllm, frozen)
    memories = [_memory("the machine", host, machine)]
    if on_gpus:
        found = _on_gpus(config, shape, gpu, vllm if starts else {}, frozen, serves)
        memories += [_memory(name, gpu, parts) for name, parts in found.items()]
    return Plan(shape, tuple(memories), kv_tokens if starts else math.inf)


def _memory(name: str, capacity: float, parts: dict[str, float]) -> Memory:
    """Without parts that are a share of a capacity that is not known."""
    return Memory(name, capacity, {part: needed for part, needed in parts.items() if math.isfinite(needed)})


def trained_parts(config: Config, shape: Shape) -> dict[str, float]:
    """What a training rank keeps between forward passes."""
    model = config.model
    trained = shape.adapters if model.lora_rank else shape.parameters
    base = shape.parameters * BYTES[model.dtype] if model.lora_rank else 0
    parts = {"weights": 4 * trained + base, "gradients": 4 * trained, "Adam's moments": 8 * trained}
    if needs_values(config.advantage.estimator):
        parts["critic"] = 16 * shape.parameters
    return _times(parts, 1 / config.training.ranks)


def pass_parts(config: Config, shape: Shape) -> dict[str, float]:
    """What a forward and backward pass of the most tokens needs besides, on a training rank."""
    training, size, on_gpus = config.training, BYTES[config.model.dtype], config.training.device == "cuda"
    longest = training.max_sequence_tokens * training.micro_batch_size / training.sequence_parallel
    tokens = int(training.max_tokens_per_micro_batch or longest)
    recomputed = on_gpus if training.gradient_checkpointing is None else training.gradient_checkpointing
    layer = tokens * size * shape.kept
    activations = layer + tokens * size * shape.hidden * shape.layers if recomputed else layer * shape.layers
    if not packs_sequences(config.model):
        activations += size * training.micro_batch_size * training.max_sequence_tokens**2  # the mask of padded rows
    return {
        "activations": activations,
        "logits": 4 * 4 * min(CHUNK_ELEMENTS, tokens * shape.words) + 16 * tokens,
        "the head's gradient": 0 if config.model.lora_rank else (4 + size) * shape.head,
        "gathered layers": size * (2 * shape.layer + shape.head * (1 + shape.tied)) if on_gpus else 0,
    }


def _times(parts: dict[str, float], number: float, suffix: str = "") -> dict[str, float]:
    return {f"{name}{suffix}": number * needed for name, needed in parts.items()}


def _served(config: Config, shape: Shape, gpu: float) -> tuple[dict[str, float], float]:
    """What vLLM takes on each of its GPUs, on CPU of one server; and for how many tokens its cache has room."""
    serving, size = config.serving, BYTES[config.model.dtype]
    weights = size * shape.parameters / serving.tensor_parallel
    adapters = size * shape.adapters * (2 + later_adapters(config))
    if config.training.device == "cpu":
        cache = serving.kv_cache_gb * GIB
        # Linear layers keep a copy of their weights in the order that oneDNN needs.
        parts = {"vLLM's process": CPU_VLLM, "vLLM's weights": 2 * weights}
    else:
        cache = serving.gpu_memory_utilization * gpu - weights - adapters - VLLM_GRAPHS
        parts = {"vLLM's weights": weights, "vLLM's graphs": VLLM_GRAPHS}
    tokens = cache / (size * shape.kv / serving.tensor_parallel)
    return parts | {"vLLM's adapters": adapters, "KV cache": max(cache, 0.0)}, tokens


def _on_machine(
    config: Config, shape: Shape, servers: int, vllm: dict[str, float], frozen: Sequence[FrozenPolicyConfig]
) -> dict[str, float]:
    """What the machine itself holds: on CPU everything; else what is offloaded or asleep, and models being loaded."""
    training, model, serving = config.training, config.model, config.serving
    ranks, whole = training.ranks // training.nodes, BYTES[model.dtype] * shape.parameters
    trained = trained_parts(config, shape)
    learning = shape.adapters if model.lora_rank else shape.parameters
    learning += shape.parameters if needs_values(config.advantage.estimator) else 0
    has_reference = config.reference.kl != "none" and not reference_without_adapters(config)
    both = {
        "reference": whole * ranks / training.ranks if has_reference else 0,
        # All of them, since one leaves the GPUs before another one is there.
        "policies not at work": 12 * learning * len(config.team) / training.nodes,
    }
    if training.device == "cpu":
        others = sum(CPU_VLLM + 2 * whole + policy.kv_cache_gb * GIB for policy in frozen)
        own = _times(trained | pass_parts(config, shape), ranks) | _times(vllm, servers)
        return both | own | {"training ranks' processes": CPU_RANK * ranks, "frozen policies": others}
    offloaded = {"weights": training.param_offload, "Adam's moments": training.optimizer_offload}
    kept = {name: needed for name, needed in trained.items() if offloaded.get(name)}
    # verl loads a tied model whole on every rank, and others on the first alone.
    loaded = (whole if model.lora_rank else 4 * shape.parameters) * (ranks if shape.tied else 1)
    return both | _times(kept, ranks, " kept here") | {
        "loading": loaded,
        "vLLM's weights asleep": whole * servers if serving.share_gpus else 0,
        "KV cache kept here": serving.kv_offload_gb * GIB * servers,
        "processes": 3 * GIB * (ranks + servers),
    }  # fmt: skip


def _on_gpus(
    config: Config,
    shape: Shape,
    gpu: float,
    vllm: dict[str, float],
    frozen: Sequence[FrozenPolicyConfig],
    serves: bool,
) -> dict[str, dict[str, float]]:
    """What the fullest GPU of each kind holds, by name. gpu: its bytes. vllm: empty where none is started."""
    serving = config.serving
    shares: Counter[int] = Counter()
    for policy in frozen:
        for device in policy.devices or (0,):
            shares[device] += policy.gpu_memory_utilization
    ours = set(serving.devices or range(serving.servers * serving.tensor_parallel))
    beside, apart = (
        {"frozen policies": max(shares[each] for each in devices) * gpu} if devices else {}
        for devices in (shares.keys() & ours, shares.keys() - ours)
    )
    kept, rank = trained_parts(config, shape), {"the rank's process": CUDA_CONTEXT}
    updating = kept | pass_parts(config, shape) | rank
    if serving.share_gpus and serves:
        # Weights count though they are offloaded: a checkpoint is written beside the next step, and verl loads them.
        stays = {"weights", "critic"} | (set() if config.training.optimizer_offload else {"Adam's moments"})
        found = {
            "a GPU while playing": vllm | beside | rank | {part: kept[part] for part in stays & kept.keys()},
            "a GPU while updating": updating | beside | {"vLLM asleep": CUDA_CONTEXT},
        }
    else:
        serving_gpu = vllm | beside | {"vLLM's process": CUDA_CONTEXT}
        found = {"a training GPU": updating} | ({"a serving GPU": serving_gpu} if vllm else {})
    return found | ({"a GPU of frozen policies": apart} if apart else {})
