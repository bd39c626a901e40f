"""A plan: what each GPU and the machine must hold at their fullest, against what they have."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from algo.planning.machine import GIB, Machine
from algo.planning.memory import CUDA_CONTEXT, Part, frozen_servers, host, passes, served, states, tokens_at_once
from algo.planning.model_shape import ModelShape, shape_of
from algo.planning.seconds import Lengths, seconds_of_step
from configs.schema import Config
from configs.section import ConfigError
from configs.sections.serving import FrozenPolicyConfig


@dataclass(frozen=True)
class Phase:
    """What is in one memory at the same time. capacity: bytes."""

    name: str
    parts: tuple[Part, ...]
    capacity: float

    @property
    def needed(self) -> float:
        """Bytes."""
        return sum(part.bytes_ for part in self.parts)

    def size(self) -> str:
        """What is needed, of what there is where that is known."""
        of = f" of {self.capacity / GIB:.1f}" if math.isfinite(self.capacity) else ""
        return f"{self.needed / GIB:.2f}{of} GiB"


@dataclass(frozen=True)
class Plan:
    """phases: of the fullest GPU of each kind, and of the machine. kv_tokens: that a server's cache has room for.
    sequences: that it holds at their longest; infinite where no server is started. lengths: of what is played.
    seconds: of a step, by stage."""

    machine: Machine
    shape: ModelShape
    phases: tuple[Phase, ...]
    kv_tokens: float
    sequences: float
    lengths: Lengths
    seconds: dict[str, float]

    def check(self, config: Config) -> None:
        """Raise ConfigError, with what to change, for what cannot fit."""
        for phase in sorted(self.phases, key=lambda phase: phase.capacity - phase.needed):
            if phase.needed > phase.capacity:
                largest = sorted(phase.parts, key=lambda part: -part.bytes_)
                shown = ", ".join(f"{part.name} {part.bytes_ / GIB:.1f}" for part in largest[:4])
                change = next(part.change for part in largest if part.change)
                raise ConfigError(
                    f"{phase.name} would hold {phase.needed / GIB:.1f} GiB and has {phase.capacity / GIB:.1f}: "
                    f"{shown}. Change {change}; `python -m algo.plan` shows all parts"
                )
        if self.sequences < 1:
            raise ConfigError(
                f"vLLM's cache would have room for {max(self.kv_tokens, 0):.0f} tokens, and one sequence may have "
                f"{config.rollout.context_tokens}: lower rollout.context_tokens, or raise "
                + ("serving.kv_cache_gb" if config.training.device == "cpu" else "serving.gpu_memory_utilization")
            )

    def in_a_line(self) -> str:
        """Memory of each kind, and the seconds of a step, for the log of a run that begins."""
        memory = "; ".join(f"{phase.name} {phase.size()}" for phase in self.phases)
        seconds = ", ".join(f"{stage} {value:.1f}" for stage, value in self.seconds.items())
        return f"{memory}; seconds of a step{'' if self.machine.measured else ' on H100s'}: {seconds}"


def make_plan(
    config: Config,
    machine: Machine,
    seats: float = 1,
    frozen: Sequence[FrozenPolicyConfig] = (),
    *,
    serves: bool = True,
    lengths: Lengths | None = None,
) -> Plan:
    """Plan a run. seats: actors of a rollout that the policy plays, on average. lengths: as a run had them; None: as
    they are to be expected.

    frozen: policies that have a vLLM of their own here, members of a pool of past selves among them.
    serves: False for a trainer alone (a warm start), beside which no policy is served.
    """
    training, serving = config.training, config.serving
    lengths = lengths or Lengths.expected(config, seats)
    shape = shape_of(config.model.path, config.model)
    gpu = machine.gpu_gib * GIB
    starts = serves and serving.mode == "start"
    vllm, kv_tokens = served(config, shape, gpu)
    ranks_here = training.ranks // training.nodes
    here = host(config, shape, ranks_here, serving.servers if starts else 0)
    if training.device == "cpu":
        here += frozen_servers(config, shape, frozen)
    phases = [Phase("the machine", tuple(here), machine.host_gib * GIB)]
    if training.device == "cuda":
        beside, apart = _frozen_policies(config, frozen, gpu)
        kept = states(config, shape)
        updating = [*kept, *passes(config, shape), Part("the rank's process", CUDA_CONTEXT)]
        # Weights count though they are offloaded: a checkpoint is written beside the next step, and verl loads them.
        stays = {"weights", "critic"} | (set() if training.optimizer_offload else {"Adam's moments"})
        resting = [Part("the rank's process", CUDA_CONTEXT), *(part for part in kept if part.name in stays)]
        if serving.share_gpus and serves:
            playing = [*vllm, Part("vLLM's process", 0.0), *beside, *resting]
            phases.append(Phase("a GPU while playing", tuple(playing), gpu))
            phases.append(Phase("a GPU while updating", (*updating, Part("vLLM asleep", CUDA_CONTEXT), *beside), gpu))
        else:
            phases.append(Phase("a training GPU", tuple(updating), gpu))
            if starts:
                phases.append(Phase("a serving GPU", (*vllm, Part("vLLM's process", CUDA_CONTEXT), *beside), gpu))
        if apart:
            phases.append(Phase("a GPU of frozen policies", tuple(apart), gpu))
    if not starts:
        kv_tokens = math.inf
    return Plan(
        machine,
        shape,
        tuple(phases),
        kv_tokens,
        kv_tokens / config.rollout.context_tokens,
        lengths,
        seconds_of_step(config, shape, machine, lengths),
    )


def _frozen_policies(config: Config, frozen: Sequence[FrozenPolicyConfig], gpu: float) -> tuple[list[Part], list[Part]]:
    """What they take of the fullest GPU that serves the trained policy too, and of the fullest other one."""
    serving = config.serving
    ours = set(serving.devices or range(serving.servers * serving.tensor_parallel))
    shares: Counter[int] = Counter()
    for policy in frozen:
        for device in policy.devices or (0,):
            shares[device] += policy.gpu_memory_utilization

    def fullest(devices: Set[int]) -> list[Part]:
        return [Part("frozen policies", max(shares[each] for each in devices) * gpu, "frozen")] if devices else []

    return fullest(shares.keys() & ours), fullest(shares.keys() - ours)


def show_plan(
    plan: Plan, config: Config, console: Console, seats: int = 1, measured: Mapping[str, float] | None = None
) -> None:
    """Print a plan as tables.

    seats: most actors of a rollout that the policy plays. measured: seconds of a run's steps, by stage.
    """
    shape, machine = plan.shape, plan.machine
    console.print(
        f"{config.model.path}: {shape.parameters / 1e9:.2f}B weights, {shape.layers} layers"
        + (f", {shape.adapters / 1e6:.1f}M in adapters" if shape.adapters else "")
        + f"; at most {tokens_at_once(config.training):,} tokens in a forward pass"
    )
    for phase in plan.phases:
        table = Table(title=f"{phase.name}: {phase.size()}", min_width=60)
        for column in ("part", "GiB", "set by"):
            table.add_column(column, justify="right" if column == "GiB" else "left")
        for part in sorted(phase.parts, key=lambda part: -part.bytes_):
            if part.bytes_:
                table.add_row(part.name, f"{part.bytes_ / GIB:.2f}", part.change)
        console.print(table)
    if math.isfinite(plan.kv_tokens):
        # What falls out of the cache is computed again at the actor's next call.
        at_once = plan.kv_tokens / (seats * plan.lengths.tokens) * config.serving.server_count
        console.print(
            f"KV cache of a server: {plan.kv_tokens:,.0f} tokens, {plan.sequences:.1f} sequences of "
            f"{config.rollout.context_tokens:,}; all actors of {at_once:,.0f} rollouts at once fit (runners' --n)"
        )
    source = "measured here" if machine.measured else "of an H100, not measured"
    lengths = plan.lengths
    console.print(
        f"rates {source}: {machine.flops / 1e12:.2f} TFLOP/s, {machine.bandwidth / 1e9:.0f} GB/s\n"
        f"sequences, {'as expected' if measured is None else 'as in the run'}: {lengths.seats:.1f} a rollout, each of "
        f"{lengths.tokens:,.0f} tokens, {lengths.sampled:,.0f} of them sampled"
    )
    table = Table(title="Seconds of a step", title_justify="left")
    for column in ("stage", "estimated", *(() if measured is None else ("in the run",))):
        table.add_column(column, justify="left" if column == "stage" else "right")
    for stage, seconds in plan.seconds.items():
        shown = () if measured is None else (f"{measured[stage]:.1f}" if stage in measured else "",)
        table.add_row(stage, f"{seconds:.1f}", *shown)
    console.print(table)
