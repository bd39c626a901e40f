"""Several policies in the place of one model: whose weights, optimizer and schedule are at work, and the others'.

A rank has one model and one optimizer. What tells the policies of a team apart is put there and taken away in place,
so that nothing is allocated or sharded anew; the base under adapters, the gradients and the buffers are shared.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed.tensor import DTensor


@dataclass
class _Stash:
    """What a member has while it is not at work.

    weights: this rank's shards of what is trained, in CPU memory, in the optimizer's order.
    state: of the optimizer, by parameter, in CPU memory. devices: where its tensors belong, by parameter and name.
    groups: the numbers of the optimizer's groups: learning rate and the like. schedule: the scheduler's state.
    """

    weights: list[torch.Tensor]
    state: dict[torch.Tensor, dict[str, Any]]
    devices: dict[torch.Tensor, dict[str, torch.device]]
    groups: list[dict[str, Any]]
    schedule: dict[str, Any]


class Members:
    """The policies of a team on one rank of one verl engine. All begin with the weights that it was loaded with."""

    def __init__(self, engine: Any, rates: Mapping[str, float]) -> None:
        """engine: verl's FSDP engine, which has made no step yet. rates: the learning rate of each; the first is at
        work."""
        self._engine = engine
        self._stashed: dict[str, _Stash] = {}
        self._selected = next(iter(rates))
        for name, rate in rates.items():
            if name != self._selected:
                set_learning_rate(engine, rate)
                weights = [_local(weight).to("cpu", copy=True) for weight in self._weights()]
                self._stashed[name] = _Stash(weights, {}, {}, *self._numbers())
        set_learning_rate(engine, rates[self._selected])

    @torch.no_grad()
    def select(self, name: str) -> None:
        """Put a member to work. Where weights or optimizer are offloaded between updates, they must be so now."""
        if name == self._selected:
            return
        optimizer, coming = self._engine.optimizer, self._stashed.pop(name)
        state = {weight: dict(found) for weight, found in optimizer.state.items()}
        leaving = _Stash(
            weights=[_local(weight).to("cpu", copy=True) for weight in self._weights()],
            state={weight: {key: _to(value, "cpu") for key, value in found.items()} for weight, found in state.items()},
            devices={
                weight: {key: value.device for key, value in found.items() if isinstance(value, torch.Tensor)}
                for weight, found in state.items()
            },
            **dict(zip(("groups", "schedule"), self._numbers(), strict=True)),
        )
        for weight, comes in zip(self._weights(), coming.weights, strict=True):
            _local(weight).copy_(comes)
        optimizer.state.clear()
        for weight, found in coming.state.items():
            places = coming.devices[weight]
            optimizer.state[weight] = {key: _to(value, places.get(key)) for key, value in found.items()}
        for group, numbers in zip(optimizer.param_groups, coming.groups, strict=True):
            group.update(numbers)
        self._engine.lr_scheduler.load_state_dict(coming.schedule)
        self._stashed[self._selected], self._selected = leaving, name

    def _weights(self) -> list[torch.Tensor]:
        groups = self._engine.optimizer.param_groups
        return [weight for group in groups for weight in group["params"] if weight.requires_grad]

    def _numbers(self) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        groups = self._engine.optimizer.param_groups
        numbers = [{key: value for key, value in group.items() if key != "params"} for group in groups]
        return copy.deepcopy(numbers), copy.deepcopy(self._engine.lr_scheduler.state_dict())


def set_learning_rate(engine: Any, rate: float) -> None:
    """Have a verl engine go on as if its optimizer and its schedule, wherever that is, had been made with this rate."""
    schedule = engine.lr_scheduler
    for number, group in enumerate(engine.optimizer.param_groups):
        schedule.base_lrs[number] = group["initial_lr"] = rate
        # As ``LambdaLR`` computes it, which is what verl schedules by.
        group["lr"] = schedule._last_lr[number] = rate * schedule.lr_lambdas[number](schedule.last_epoch)


def _local(weight: torch.Tensor) -> torch.Tensor:
    """This rank's shard, of which writing writes the weight."""
    return weight.to_local() if isinstance(weight, DTensor) else weight.detach()


def _to(value: Any, device: torch.device | str | None) -> Any:
    return value.to(device) if isinstance(value, torch.Tensor) and device is not None else value
