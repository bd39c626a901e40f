"""How long a step may take, by stage, from the machine's rates: an estimate to tell minutes from hours by."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Self

from algo.planning.machine import Machine
from algo.planning.memory import recomputes
from algo.planning.model_shape import BYTES, ModelShape
from configs.schema import Config

FILLED = 0.5
"""Share of ``rollout.context_tokens`` that a sequence fills, of which ``REPLIES`` are sampled."""
REPLIES = 0.15
UTILISATION = 0.4
"""Share of the matrix rate that a forward or backward pass reaches: usual on GPUs, and what 135M weights reach on CPU.

Models whose matrices are tiny reach about half of that.
"""
_LINK = 25e9
"""Bytes a second between a GPU and the machine's memory."""


@dataclass(frozen=True)
class Lengths:
    """Of the policy's sequences, on average. seats: sequences of a rollout, whose turns come one after another.

    tokens: of a sequence. sampled: of these, the policy's own.
    """

    seats: float
    tokens: float
    sampled: float

    @classmethod
    def expected(cls, config: Config, seats: float) -> Self:
        """What to plan with before anything has been played."""
        tokens = FILLED * config.rollout.context_tokens
        return cls(seats, tokens, REPLIES * tokens)

    @classmethod
    def measured(cls, steps: Sequence[Mapping[str, float]]) -> Self:
        """Those of a run. steps: the metrics of each. Raises ValueError where it trained on nothing."""
        rollouts, sequences, tokens, sampled = (
            sum(metrics.get(name, 0.0) for metrics in steps)
            for name in ("games/finished", "tokens/sequences", "tokens/total", "tokens/sampled")
        )
        if not (rollouts and sequences):
            raise ValueError("no step of the run has sequences whose lengths could be taken")
        return cls(sequences / rollouts, tokens / sequences, sampled / sequences)


def measured_seconds(steps: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Seconds by stage of a run's steps, on average, under the names of ``seconds_of_step``."""
    return {
        stage: fmean(found)
        for stage in ("play", "update", "push")
        if (found := [metrics[f"seconds/{stage}"] for metrics in steps if f"seconds/{stage}" in metrics])
    }


def seconds_of_step(config: Config, shape: ModelShape, machine: Machine, lengths: Lengths) -> dict[str, float]:
    """Seconds by stage, without what runners, HTTP and the hub take: with a tiny model most of playing."""
    training, serving, size = config.training, config.serving, BYTES[config.model.dtype]
    rollouts = config.rollout.groups_per_step * config.rollout.rollouts_per_group
    sequences = rollouts * lengths.seats
    flops = shape.flops(sequences * lengths.tokens, lengths.tokens, sequences * lengths.sampled)
    forward = flops / (machine.flops * UTILISATION)
    gpus = max(1, serving.server_count * serving.tensor_parallel) if training.device == "cuda" else 1
    ranks = training.ranks if training.device == "cuda" else 1
    # Every token of a batch reads all weights once, and each sequence its own cache; a rollout's seats take turns.
    at_once = max(1.0, rollouts / serving.server_count)
    read = size * (shape.parameters + at_once * shape.kv_per_token * lengths.tokens / 2) / serving.tensor_parallel
    decode = lengths.seats * lengths.sampled * read / machine.bandwidth
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
