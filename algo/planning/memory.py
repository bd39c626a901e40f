"""Memory by part: of each GPU while rollouts are played and while the policy is updated, and of the machine.

Estimates to plan by, in bytes. What is known exactly (weights, gradients, Adam, KV) is counted; what frameworks take
for themselves is a constant, named as such; ``tests/algo/planning`` holds the sums against measured ones on CPU.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from algo.advantages.registry import needs_values
from algo.planning.machine import GIB
from algo.planning.model_shape import BYTES, ModelShape
from algo.serving.launch import later_adapters
from algo.training.chunked_head import CHUNK_ELEMENTS
from algo.training.verl_configs import packs_sequences, reference_without_adapters
from configs.schema import Config
from configs.sections.serving import FrozenPolicyConfig
from configs.sections.training import TrainingConfig

CUDA_CONTEXT = 1.2 * GIB
"""Of a process on a GPU: CUDA's context, kernels, NCCL's buffers."""
VLLM_GRAPHS = 1.5 * GIB
"""vLLM's CUDA graphs and its forward pass of 8,192 tokens, of models to 8B."""
CPU_RANK = 0.75 * GIB
"""A training rank's process on CPU without its model: Python, torch, transformers, verl, Ray."""
CPU_VLLM = 1.1 * GIB
"""A vLLM process on CPU without its model and cache."""


@dataclass(frozen=True)
class Part:
    """bytes_: on one GPU, or on the machine. change: the settings that decide, in the order in which to try them."""

    name: str
    bytes_: float
    change: str = ""


def tokens_at_once(training: TrainingConfig) -> int:
    """Most tokens of one forward pass on one rank."""
    longest = training.max_sequence_tokens * training.micro_batch_size / training.sequence_parallel
    return int(training.max_tokens_per_micro_batch or longest)


def recomputes(training: TrainingConfig) -> bool:
    """Whether activations are computed anew in the backward pass."""
    return training.device != "cpu" if training.gradient_checkpointing is None else training.gradient_checkpointing


def states(config: Config, shape: ModelShape) -> list[Part]:
    """What a training rank keeps between forward passes: weights, gradients, Adam."""
    training, model = config.training, config.model
    trained = shape.adapters if model.lora_rank else shape.parameters
    frozen = shape.parameters * BYTES[model.dtype] if model.lora_rank else 0
    more = "training.ranks, model.lora_rank"
    parts = [
        Part("weights", (4 * trained + frozen) / training.ranks, f"training.param_offload, {more}"),
        Part("gradients", 4 * trained / training.ranks, more),
        Part("Adam's moments", 8 * trained / training.ranks, f"training.optimizer_offload, {more}"),
    ]
    if needs_values(config.advantage.estimator):
        whole = shape.parameters / training.ranks
        parts.append(Part("critic", 16 * whole, "advantage.estimator, training.ranks"))
    if config.reference.kl != "none" and not reference_without_adapters(config) and training.device == "cpu":
        parts.append(Part("reference", BYTES[model.dtype] * shape.parameters / training.ranks, "reference.kl"))
    return parts


def others_of_team(config: Config, shape: ModelShape) -> list[Part]:
    """What the machines keep of several policies while they are not at work: weights and optimizers, of all ranks."""
    if not config.team:
        return []
    trained = shape.adapters if config.model.lora_rank else shape.parameters
    trained += shape.parameters if needs_values(config.advantage.estimator) else 0
    # All of them, since one leaves before another one is there.
    return [Part("policies not at work", 12.0 * trained * len(config.team), "policies, model.lora_rank")]


def passes(config: Config, shape: ModelShape) -> list[Part]:
    """What a forward and backward pass of the most tokens needs besides."""
    training, size = config.training, BYTES[config.model.dtype]
    tokens = tokens_at_once(training)
    # Of one layer: inputs of norms, projections and the MLP, that autograd keeps.
    attention = (shape.heads + 2 * shape.kv_heads) * shape.head_size
    layer = tokens * size * (6 * shape.hidden + 3 * attention + 4 * shape.intermediate)
    kept = tokens * size * shape.hidden * shape.layers + layer if recomputes(training) else layer * shape.layers
    if not packs_sequences(config.model):
        kept += size * training.micro_batch_size * training.max_sequence_tokens**2  # the mask of padded rows
    logits = 4 * 4 * min(CHUNK_ELEMENTS, tokens * shape.words)
    trains_head = 0 if config.model.lora_rank else 4 + size
    gathered = 0.0 if training.device == "cpu" else size * (2 * shape.layer + shape.head * (1 + shape.tied))
    fewer = "training.max_sequence_tokens, training.max_tokens_per_micro_batch, training.micro_batch_size"
    return [
        Part("activations", kept, f"{fewer}, training.sequence_parallel, training.gradient_checkpointing"),
        Part("logits", logits + 16 * tokens),
        Part("the head's gradient", trains_head * shape.head, "model.lora_rank"),
        Part("gathered layers", gathered),
    ]


def served(config: Config, shape: ModelShape, gpu_bytes: float) -> tuple[list[Part], float]:
    """What vLLM takes on each of its GPUs, and for how many tokens its KV cache has room; on CPU of one server."""
    serving, size = config.serving, BYTES[config.model.dtype]
    adapters = size * shape.adapters * (2 + later_adapters(config))
    weights = size * shape.parameters / serving.tensor_parallel
    per_token = size * shape.kv_per_token / serving.tensor_parallel
    if config.training.device == "cpu":
        cache = serving.kv_cache_gb * GIB
        # Linear layers keep a copy of their weights in the order that oneDNN likes.
        parts = [Part("vLLM's process", CPU_VLLM), Part("vLLM's weights", 2 * weights)]
    else:
        cache = serving.gpu_memory_utilization * gpu_bytes - weights - adapters - VLLM_GRAPHS
        parts = [Part("vLLM's weights", weights, "serving.tensor_parallel"), Part("vLLM's graphs", VLLM_GRAPHS)]
    if shape.adapters:
        parts.append(Part("vLLM's adapters", adapters, "model.lora_rank"))
    setting = "serving.kv_cache_gb" if config.training.device == "cpu" else "serving.gpu_memory_utilization"
    parts.append(Part("KV cache", max(cache, 0.0), setting))
    return parts, cache / per_token


def frozen_servers(config: Config, shape: ModelShape, frozen: Sequence[FrozenPolicyConfig]) -> list[Part]:
    """What vLLM servers of other policies take on CPU, taken to be of the trained policy's size."""
    weights = 2 * BYTES[config.model.dtype] * shape.parameters
    needed = sum(CPU_VLLM + weights + policy.kv_cache_gb * GIB for policy in frozen)
    return [Part("frozen policies", needed, "league.servers, frozen, policies")] if frozen else []


def host(config: Config, shape: ModelShape, ranks_here: int, servers: int) -> list[Part]:
    """What the machine itself must hold: on CPU everything, else what is offloaded or asleep, and the loading."""
    training, size = config.training, BYTES[config.model.dtype]
    kept = states(config, shape)
    if training.device == "cpu":
        rank = Part("training ranks' processes", CPU_RANK * ranks_here)
        parts = [Part(part.name, part.bytes_ * ranks_here, part.change) for part in [*kept, *passes(config, shape)]]
        serving, _ = served(config, shape, 0.0)
        parts += others_of_team(config, shape)
        return [rank, *parts, *(Part(part.name, part.bytes_ * servers, part.change) for part in serving)]
    offloaded = {"weights": training.param_offload, "Adam's moments": training.optimizer_offload}
    parts = [
        Part(f"{part.name} kept here", part.bytes_ * ranks_here, "training.ranks")
        for part in kept
        if offloaded.get(part.name)
    ]
    parts += (Part(part.name, part.bytes_ / training.nodes, part.change) for part in others_of_team(config, shape))
    if config.reference.kl != "none" and not reference_without_adapters(config):
        parts.append(Part("reference", size * shape.parameters * ranks_here / training.ranks, "reference.kl"))
    # verl loads a tied model whole on every rank, and others on the first alone.
    loading = (size if config.model.lora_rank else 4) * shape.parameters * (ranks_here if shape.tied else 1)
    parts.append(Part("loading", loading, "training.ranks"))
    if config.serving.share_gpus and servers:
        parts.append(Part("vLLM's weights asleep", size * shape.parameters * servers, "serving.servers"))
    parts.append(Part("KV cache kept here", config.serving.kv_offload_gb * GIB * servers, "serving.kv_offload_gb"))
    return [*parts, Part("processes", 3 * GIB * (ranks_here + servers))]
