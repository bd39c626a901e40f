"""Plans the memory of a run by part, and rejects a run that does not fit its GPUs or machine.

Weights, gradients, Adam's moments and the KV cache follow from the model's config.json; the frameworks' own memory is a
constant. ``tests/algo/run/test_memory_plan.py`` compares the sums with measurements on CPU. Parts are dictionaries,
name -> bytes; a name lists the settings to change in parentheses, the most effective first.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import psutil
import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM

from algo.advantages.registry import needs_values
from algo.machine.memory import memory_limit
from algo.serving.launch import Launch, later_adapters, policy_launches, pool_servers
from algo.serving.policies import frozen_with_own_server
from algo.training.chunked_head import CHUNK_ELEMENTS
from algo.training.verl_configs import packs_sequences, reference_without_adapters
from configs.schema import Config
from configs.section import ConfigError
from configs.sections.serving import FrozenPolicyConfig
from configs.sections.training import ModelConfig

GIB = 2**30
CUDA_CONTEXT = 1.2 * GIB  # CUDA context, kernels and NCCL buffers of a process on a GPU
VLLM_GRAPHS = 1.5 * GIB  # vLLM's CUDA graphs and its forward pass of 8,192 tokens, for models up to 8B
CPU_RANK, CPU_VLLM, GPU_PROCESS = 0.75 * GIB, 1.1 * GIB, 3 * GIB  # a process in CPU memory, without models

WEIGHTS = "weights (training.param_offload, training.ranks, model.lora_rank)"
MOMENTS = "Adam's moments (training.optimizer_offload, training.ranks, model.lora_rank)"
CRITIC = "critic (advantage.estimator, training.ranks)"
FROZEN = "frozen policies (league.servers, frozen, policies)"
CACHE = "KV cache (serving.kv_cache_gb on CPU, serving.gpu_memory_utilization)"


@dataclass(frozen=True)
class Shape:
    """Sizes of a model in numbers of weights.

    parameters: all, tied ones once. layer: the largest decoder layer. kept: inputs of a layer's modules per token, for
    autograd. kv: KV cache per token. adapters: of LoRA.
    """

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
class Plan:
    """memories: simultaneous parts of the machine and of the fullest GPU of each kind, by name. capacity: bytes of
    each, infinite if unknown. kv_tokens: KV cache of a server that the run starts; infinite without one."""

    shape: Shape
    memories: dict[str, dict[str, float]]
    capacity: dict[str, float]
    kv_tokens: float

    def needed(self, name: str) -> float:
        return sum(self.memories[name].values())

    def line(self, name: str) -> str:
        """A memory's need and capacity, as text."""
        of = f" of {self.capacity[name] / GIB:.1f}" if math.isfinite(self.capacity[name]) else ""
        return f"{name} {self.needed(name) / GIB:.1f}{of} GiB"

    def table(self, config: Config, actors: int) -> str:
        """All parts, as text. actors: maximum of the policy's actors in a rollout."""
        sizes = f"{self.shape.parameters / 1e9:.2f}B weights, {self.shape.adapters / 1e6:.1f}M in adapters"
        lines = [f"{config.model.path}: {sizes}"]
        for name in self.memories:
            lines += ["", self.line(name), *(f"{size / GIB:8.2f}  {part}" for part, size in self._largest(name))]
        if math.isfinite(self.kv_tokens):
            sequences = self.kv_tokens / config.rollout.context_tokens
            rollouts = config.serving.servers * sequences / actors
            lines.append(
                f"\nKV cache of a server: {self.kv_tokens:,.0f} tokens, {sequences:.1f} sequences of "
                f"{config.rollout.context_tokens:,}; enough for {rollouts:,.1f} concurrent rollouts of "
                f"{actors} actor{'s' * (actors > 1)}"
            )
        return "\n".join(lines)

    def check(self, config: Config) -> None:
        """Raise ConfigError, with the settings to change, if the plan does not fit."""
        fullest = min(self.memories, key=lambda name: self.capacity[name] - self.needed(name))
        if self.needed(fullest) > self.capacity[fullest]:
            shown = "; ".join(f"{size / GIB:.1f} {part}" for part, size in self._largest(fullest)[:4])
            raise ConfigError(
                f"{fullest} needs {self.needed(fullest) / GIB:.1f} GiB and has {self.capacity[fullest] / GIB:.1f}. Its "
                f"largest parts, with the settings to change: {shown}; `python -m algo.plan` shows all"
            )
        if self.kv_tokens < config.rollout.context_tokens:
            raise ConfigError(
                f"vLLM's cache has room for {max(self.kv_tokens, 0):.0f} tokens, but one sequence may have "
                f"{config.rollout.context_tokens}: lower rollout.context_tokens, or increase the {CACHE}"
            )

    def _largest(self, name: str) -> list[tuple[str, float]]:
        return sorted(((part, size) for part, size in self.memories[name].items() if size), key=lambda part: -part[1])


def shape_of(model: ModelConfig) -> Shape:
    """The shape of the model, from its config.json. Raises OSError without one."""
    settings = AutoConfig.from_pretrained(model.path)
    with torch.device("meta"):
        skeleton = AutoModelForCausalLM.from_config(settings)
    head = skeleton.get_output_embeddings()
    decoders = [part for part in skeleton.modules() if type(part).__name__ in (skeleton._no_split_modules or ())]
    adapted = [part for part in skeleton.modules() if isinstance(part, nn.Linear) and part is not head]
    sizes = settings.get_text_config()  # nested where the model also takes images
    heads, layers, hidden = sizes.num_attention_heads, sizes.num_hidden_layers, sizes.hidden_size
    kv_heads = getattr(sizes, "num_key_value_heads", None) or heads
    head_size = getattr(sizes, "head_dim", None) or hidden // heads
    inner = getattr(sizes, "intermediate_size", None) or 4 * hidden  # the default of GPT-2 and others
    return Shape(
        parameters=sum(weight.numel() for weight in skeleton.parameters()),
        head=head.weight.numel(),
        layer=max((sum(weight.numel() for weight in part.parameters()) for part in decoders), default=0),
        kept=6 * hidden + 3 * (heads + 2 * kv_heads) * head_size + 4 * inner,
        kv=2 * layers * kv_heads * head_size,
        adapters=model.lora_rank * sum(part.in_features + part.out_features for part in adapted),
        layers=layers,
        hidden=hidden,
        words=sizes.vocab_size,
        tied=bool(settings.tie_word_embeddings),
    )


def other_servers(config: Config, names: Iterable[str]) -> list[FrozenPolicyConfig | Launch]:
    """The vLLM servers of a run other than those of its first policy. names: of its frozen policies."""
    own = [policy for policy in frozen_with_own_server(config, names).values() if policy.path is not None]
    learners = [] if config.model.lora_rank else [*config.learners][1:]
    return [*own, *pool_servers(config), *(one for name in learners for one in policy_launches(config, name))]


def make_plan(
    config: Config,
    frozen: Sequence[FrozenPolicyConfig | Launch] = (),
    *,
    gpu_gib: float | None = None,
    host_gib: float | None = None,
) -> Plan:
    """Plan the memory of a run.

    frozen: other vLLM servers on this machine, assumed to be of the trained policy's size.
    gpu_gib, host_gib: memory of each GPU and of the machine; None: those of this machine, unknown without its GPUs.
    """
    shape, serving, training, size = shape_of(config.model), config.serving, config.training, _bytes(config)
    on_gpus = training.device == "cuda"
    here = torch.cuda.is_available() or not on_gpus
    gpu = gpu_gib * GIB if gpu_gib else torch.cuda.mem_get_info(0)[1] if on_gpus and here else math.inf
    host = host_gib * GIB if host_gib else min(psutil.virtual_memory().total, memory_limit()) if here else math.inf
    whole, trained = size * shape.parameters, trained_parts(config, shape)
    updating = trained | pass_parts(config, shape)
    vllm = {
        # On CPU, linear layers keep a copy of their weights in oneDNN's format.
        "vLLM's weights (serving.tensor_parallel)": whole / serving.tensor_parallel * (1 if on_gpus else 2),
        "vLLM's adapters (model.lora_rank)": size * shape.adapters * (2 + later_adapters(config)),
        "vLLM's graphs" if on_gpus else "vLLM's process": VLLM_GRAPHS if on_gpus else CPU_VLLM,
    }
    cache = serving.gpu_memory_utilization * gpu - sum(vllm.values()) if on_gpus else serving.kv_cache_gb * GIB
    kv_tokens = cache / (size * shape.kv / serving.tensor_parallel)
    vllm = vllm | {CACHE: max(cache, 0.0)} if serving.mode == "start" else {}

    ranks, servers = training.ranks // training.nodes, serving.servers if vllm else 0
    has_reference = config.reference.kl != "none" and not reference_without_adapters(config)
    one_policy = (1.5 * trained[MOMENTS] + 0.75 * trained[CRITIC]) * training.ranks
    machine = {
        "reference (reference.kl)": whole * ranks / training.ranks if has_reference else 0,
        # All of them, since a policy is swapped out before the next one is loaded.
        "inactive policies (policies, model.lora_rank)": one_policy * len(config.team) / training.nodes,
    }
    found = {"the machine": machine}
    if on_gpus:
        started = config.started_servers if vllm else 0
        # verl loads a tied model on every rank, others on the first only.
        loaded = (whole if shape.adapters else 4 * shape.parameters) * (ranks if shape.tied else 1)
        machine |= {
            WEIGHTS: ranks * trained[WEIGHTS] * training.param_offload,
            MOMENTS: ranks * trained[MOMENTS] * training.optimizer_offload,
            "loading (training.ranks)": loaded,
            "vLLM's weights asleep (serving.servers)": whole * started * serving.share_gpus,
            "offloaded KV cache (serving.kv_offload_gb)": serving.kv_offload_gb * GIB * started,
            "processes": GPU_PROCESS * (ranks + started),
        }
        found |= _on_gpus(config, trained, updating | {"the rank's process": CUDA_CONTEXT}, vllm, frozen, gpu)
    else:
        of_ranks = updating | {"training ranks' processes": CPU_RANK}
        machine |= {name: ranks * needed for name, needed in of_ranks.items()}
        machine |= {name: servers * needed for name, needed in vllm.items()}
        machine[FROZEN] = sum(CPU_VLLM + 2 * whole + policy.kv_cache_gb * GIB for policy in frozen)
    memories = {
        # Without shares of an unknown capacity.
        name: {part: needed for part, needed in parts.items() if math.isfinite(needed)}
        for name, parts in found.items()
    }
    capacity = dict.fromkeys(memories, gpu) | {"the machine": host}
    return Plan(shape, memories, capacity, kv_tokens if vllm else math.inf)


def trained_parts(config: Config, shape: Shape) -> dict[str, float]:
    """Memory of a training rank between forward passes."""
    trained = shape.adapters or shape.parameters
    base = shape.parameters * _bytes(config) if shape.adapters else 0
    critic = 16 * shape.parameters if needs_values(config.advantage.estimator) else 0
    gradients = "gradients (training.ranks, model.lora_rank)"
    whole = {WEIGHTS: 4 * trained + base, gradients: 4 * trained, MOMENTS: 8 * trained, CRITIC: critic}
    return {name: needed / config.training.ranks for name, needed in whole.items()}


def pass_parts(config: Config, shape: Shape) -> dict[str, float]:
    """Additional memory of a training rank during the largest forward and backward pass."""
    training, size, on_gpus = config.training, _bytes(config), config.training.device == "cuda"
    longest = training.max_sequence_tokens * training.micro_batch_size / training.sequence_parallel
    tokens = int(training.max_tokens_per_micro_batch or longest)
    recomputed = on_gpus if training.gradient_checkpointing is None else training.gradient_checkpointing
    kept = shape.kept + shape.hidden * shape.layers if recomputed else shape.kept * shape.layers
    padding = 0 if packs_sequences(config.model) else training.micro_batch_size * training.max_sequence_tokens**2
    settings = "max_sequence_tokens, max_tokens_per_micro_batch, micro_batch_size, sequence_parallel"
    return {
        f"activations (training.{settings}, gradient_checkpointing)": size * (tokens * kept + padding),
        "logits": 4 * 4 * min(CHUNK_ELEMENTS, tokens * shape.words) + 16 * tokens,
        "the head's gradient (model.lora_rank)": 0 if shape.adapters else (4 + size) * shape.head,
        "gathered layers": size * (2 * shape.layer + shape.head * (1 + shape.tied)) if on_gpus else 0,
    }


def _bytes(config: Config) -> int:
    """Bytes of a weight in computations and serving."""
    return 4 if config.model.dtype == "float32" else 2


def _on_gpus(
    config: Config,
    trained: dict[str, float],
    updating: dict[str, float],
    vllm: dict[str, float],
    frozen: Sequence[FrozenPolicyConfig | Launch],
    gpu: float,
) -> dict[str, dict[str, float]]:
    """Parts of the fullest GPU of each kind, by name. gpu: its bytes. vllm: empty if none is started."""
    serving, taken = config.serving, defaultdict[int, float](float)
    for policy in frozen:
        for device in policy.devices or (0,):
            taken[device] += policy.gpu_memory_utilization
    ours = {device for launch in policy_launches(config) for device in launch.devices}
    with_ours, elsewhere = (
        {FROZEN: max(taken[each] for each in devices) * gpu} if devices else {}
        for devices in (taken.keys() & ours, taken.keys() - ours)
    )
    if serving.share_gpus:
        # Offloaded weights count, too: verl loads them for a checkpoint, which is written during the next step.
        stay = [WEIGHTS, CRITIC, *([] if config.training.optimizer_offload else [MOMENTS])]
        resident = {"the rank's process": CUDA_CONTEXT} | {part: trained[part] for part in stay}
        found = {
            "a GPU during rollouts": vllm | with_ours | resident,
            "a GPU during updates": updating | with_ours | {"vLLM asleep": CUDA_CONTEXT},
        }
    else:
        of_serving = {"a serving GPU": vllm | with_ours | {"vLLM's process": CUDA_CONTEXT}} if vllm else {}
        found = {"a training GPU": updating, **of_serving}
    return found | ({"a GPU of frozen policies": elsewhere} if elsewhere else {})
