"""How long a step may take, by stage, from the machine's rates: an estimate to tell minutes from hours by."""

from algo.planning.machine import Machine
from algo.planning.memory import recomputes
from algo.planning.model_shape import BYTES, ModelShape
from configs.schema import Config

FILLED = 0.5
"""Share of ``rollout.context_tokens`` that a sequence fills, of which ``REPLIES`` are sampled."""
REPLIES = 0.15
UTILISATION = 0.4
"""Share of the matrix rate that a forward or backward pass reaches."""
_LINK = 25e9
"""Bytes a second between a GPU and the machine's memory."""


def seconds_of_step(config: Config, shape: ModelShape, machine: Machine, seats: float) -> dict[str, float]:
    """Seconds by stage. seats: actors of a rollout that the policy plays, one after another, on average."""
    training, serving, size = config.training, config.serving, BYTES[config.model.dtype]
    rollouts = config.rollout.groups_per_step * config.rollout.rollouts_per_group
    length = int(FILLED * config.rollout.context_tokens)
    tokens = int(rollouts * seats * length)
    forward = shape.flops(tokens, length) / (machine.flops * UTILISATION)
    gpus = max(1, serving.server_count * serving.tensor_parallel) if training.device == "cuda" else 1
    ranks = training.ranks if training.device == "cuda" else 1
    # Every token of a batch reads all weights once, and each sequence its own cache; a rollout's seats take turns.
    at_once = max(1.0, rollouts / serving.server_count)
    read = size * (shape.parameters + at_once * shape.kv_per_token * length / 2) / serving.tensor_parallel
    decode = seats * length * REPLIES * read / machine.bandwidth
    passes = training.epochs * (4 if recomputes(training) else 3) + 1 + (config.reference.kl != "none")
    trained = shape.adapters if config.model.lora_rank else shape.parameters
    moved = size * (shape.adapters or shape.parameters) * max(1, len(config.team))
    rate = machine.disk / 2 if serving.weight_transfer == "folder" or config.model.lora_rank else _LINK
    found = {
        "play": decode + forward / gpus,
        "update": passes * forward / ranks,
        "push": moved / rate,
        "checkpoint, beside the next": (12 * trained + size * shape.parameters)
        / machine.disk
        / config.checkpoint.every_steps,
    }
    if serving.share_gpus:
        found["sleep and wake"] = 2 * size * shape.parameters / serving.tensor_parallel / _LINK
    kept = 4 * training.param_offload + 8 * training.optimizer_offload
    if kept:
        found["offloaded weights"] = 2 * kept * trained / training.ranks / _LINK
    return found
