"""Muon for a model's hidden matrices, AdamW for all its other weights, in one optimizer.

Muon orthogonalises a matrix's momentum before a step, so that directions with small gradients move as far as those with
large ones (K. Jordan et al., 2024, https://kellerjordan.github.io/posts/muon; J. Liu et al., Muon is Scalable for LLM
Training, 2025, arXiv:2502.16982). It suits training from random weights, such as the tiny model's imitation.
Embeddings, output head, norms and biases use AdamW, as both sources recommend.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor, distribute_tensor

MATRICES = "matrices"
"""Key of a parameter group: whether it uses Muon."""

_MOMENTUM = 0.95
# Both sources' quintic iteration brings singular values close to 1 in five steps.
_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
_ITERATIONS = 5
_EPSILON = 1e-7


def parameter_groups(module: nn.Module) -> list[dict[str, Any]]:
    """Parameter groups of a transformers model: AdamW's, then Muon's."""
    ends = {id(part.weight) for part in (module.get_input_embeddings(), module.get_output_embeddings()) if part}
    trained = [weight for weight in module.parameters() if weight.requires_grad]
    matrices = [weight for weight in trained if weight.ndim == 2 and id(weight) not in ends]
    hidden = set(map(id, matrices))
    others = [weight for weight in trained if id(weight) not in hidden]
    groups = [{"params": others, MATRICES: False}, {"params": matrices, MATRICES: True}]
    return [group for group in groups if group["params"]]


class MuonAndAdamW(torch.optim.AdamW):
    """Muon for parameter groups with ``matrices: True``, AdamW for the others.

    One optimizer, unlike ``torch.optim.Muon``, for verl's engine, checkpoints and schedule. matrix_rate: factor of
    Muon's learning rate. settings: AdamW's (lr, betas, weight_decay).
    """

    def __init__(self, params: Iterable[Any], matrix_rate: float, **settings: Any) -> None:
        super().__init__(params, **settings)
        self._matrix_rate = matrix_rate

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        stepped = [
            (weight, weight.grad, group)
            for group in self.param_groups
            if group[MATRICES]
            for weight in group["params"]
            if weight.grad is not None
        ]
        for weight, _, _ in stepped:
            weight.grad = None  # AdamW skips weights without a gradient
        found = super().step(closure)
        for weight, gradient, group in stepped:
            weight.grad = gradient
            self._step_matrix(weight, gradient, group)
        return found

    def _step_matrix(self, weight: torch.Tensor, gradient: torch.Tensor, group: dict[str, Any]) -> None:
        state = self.state[weight]
        if not state:
            # AdamW expects a step in every state that it loads.
            state |= {"step": torch.tensor(0.0), "momentum": torch.zeros_like(gradient)}
        state["step"] += 1
        state["momentum"].lerp_(gradient, 1 - _MOMENTUM)
        direction = orthogonalised(gradient.lerp(state["momentum"], _MOMENTUM))  # Nesterov's
        rate = group["lr"] * self._matrix_rate
        rows, columns = weight.shape
        weight.mul_(1 - group["lr"] * group["weight_decay"])
        weight.add_(direction, alpha=-rate * math.sqrt(max(1.0, rows / columns)))


def orthogonalised(matrix: torch.Tensor) -> torch.Tensor:
    """The nearest matrix with all singular values about 1 (0.7 to 1.2), of the same shape and type.

    A sharded matrix is gathered; the result is sharded the same way.
    """
    whole = matrix.full_tensor() if isinstance(matrix, DTensor) else matrix
    # bfloat16 is precise enough, and much faster on GPUs, but often not on CPUs.
    work = whole.bfloat16() if whole.is_cuda else whole.float()
    wide = work.T if work.shape[0] > work.shape[1] else work
    wide = wide / (wide.norm() + _EPSILON)
    first, second, third = _COEFFICIENTS
    for _ in range(_ITERATIONS):
        product = wide @ wide.T
        wide = first * wide + (second * product + third * product @ product) @ wide
    found = (wide.T if work.shape[0] > work.shape[1] else wide).to(whole.dtype)
    if isinstance(matrix, DTensor):
        # Every rank has the whole result, so nothing is sent.
        return distribute_tensor(found, matrix.device_mesh, matrix.placements, src_data_rank=None)
    return found
