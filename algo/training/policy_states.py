"""Several policies on one rank with one model and one optimizer.

Weights, optimizer state and schedule are swapped in place, without new allocations or sharding; gradients, buffers and
the base under adapters are shared.
"""

import copy
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch.distributed.tensor import DTensor


class _State(NamedTuple):
    """An inactive policy.

    weights: this rank's shards, in CPU memory, in the optimizer's order.
    moments: the optimizer's state, by parameter and name: each tensor in CPU memory, and its device.
    groups: settings such as the learning rate, by parameter group. schedule: the scheduler's state.
    """

    weights: list[torch.Tensor]
    moments: dict[torch.Tensor, dict[str, tuple[Any, torch.device | None]]]
    groups: list[dict[str, Any]]
    schedule: dict[str, Any]


class PolicyStates:
    """The policies of one verl engine. All start with its weights; the first is active."""

    def __init__(self, engine: Any, rates: Sequence[float], policies: Sequence[str]) -> None:
        """engine: verl's FSDP engine before its first step. rates: the learning rate of each policy."""
        self._engine = engine
        self._inactive: dict[str, _State] = {}
        self._active = policies[0]
        for name, rate in reversed(list(zip(policies, rates, strict=True))):
            set_learning_rate(engine, rate)
            if name != self._active:
                self._inactive[name] = self._state()

    @torch.no_grad()
    def select(self, name: str) -> None:
        """Make a policy active. Weights and optimizer with offloading must be offloaded at the call."""
        if name == self._active:
            return
        optimizer, leaving, coming = self._engine.optimizer, self._state(), self._inactive.pop(name)
        for weight, comes in zip(self._weights(), coming.weights, strict=True):
            _local(weight).copy_(comes)
        optimizer.state.clear()
        for weight, moments in coming.moments.items():
            optimizer.state[weight] = {
                key: value if device is None else value.to(device) for key, (value, device) in moments.items()
            }
        for group, numbers in zip(optimizer.param_groups, coming.groups, strict=True):
            group.update(numbers)
        self._engine.lr_scheduler.load_state_dict(coming.schedule)
        self._inactive[self._active], self._active = leaving, name

    def _weights(self) -> list[torch.Tensor]:
        groups = self._engine.optimizer.param_groups
        return [weight for group in groups for weight in group["params"] if weight.requires_grad]

    def _state(self) -> _State:
        optimizer = self._engine.optimizer
        groups = [{key: value for key, value in group.items() if key != "params"} for group in optimizer.param_groups]
        return _State(
            weights=[_local(weight).to("cpu", copy=True) for weight in self._weights()],
            moments={
                weight: {
                    key: (value.to("cpu"), value.device) if isinstance(value, torch.Tensor) else (value, None)
                    for key, value in moments.items()
                }
                for weight, moments in optimizer.state.items()
            },
            groups=copy.deepcopy(groups),
            schedule=copy.deepcopy(self._engine.lr_scheduler.state_dict()),
        )


def load_checkpoint(part: Any, directory: str, rate: float) -> None:
    """Load a checkpoint into a verl worker; the optimizer's settings stay those of the configuration."""
    groups = part.engine.optimizer.param_groups
    settings = [{name: group[name] for name in ("betas", "weight_decay") if name in group} for group in groups]
    part.load_checkpoint(directory)
    for group, configured in zip(part.engine.optimizer.param_groups, settings, strict=True):
        group.update(configured)
    set_learning_rate(part.engine, rate)


def set_learning_rate(engine: Any, rate: float) -> None:
    """Set the initial learning rate of a verl engine's optimizer and schedule."""
    schedule = engine.lr_scheduler
    for number, group in enumerate(engine.optimizer.param_groups):
        schedule.base_lrs[number] = group["initial_lr"] = rate
        # As in ``LambdaLR``, verl's schedule.
        group["lr"] = schedule._last_lr[number] = rate * schedule.lr_lambdas[number](schedule.last_epoch)


def _local(weight: torch.Tensor) -> torch.Tensor:
    """This rank's shard, a view of the weight."""
    return weight.to_local() if isinstance(weight, DTensor) else weight.detach()
