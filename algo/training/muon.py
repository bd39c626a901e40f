"""Muon for a model's hidden matrices, AdamW for all its other weights, in one optimizer.

Muon orthogonalises a matrix's momentum before it steps, so that directions in which gradients are small move as far as
those in which they are large (K. Jordan et al., 2024, https://kellerjordan.github.io/posts/muon; J. Liu et al., Muon is
Scalable for LLM Training, 2025, arXiv:2502.16982). Suits training from random weights, as the tiny model's imitation.
Embeddings, output head, norms and biases stay with AdamW, as both sources advise.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor, distribute_tensor

MATRICES = "matrices"
"""Key of a group of parameters: whether Muon steps them."""

_MOMENTUM = 0.95
# Of the quintic iteration that both sources use: it takes singular values near to 1, not exactly, in five steps.
_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
_ITERATIONS = 5
_EPSILON = 1e-7


def parameter_groups(module: nn.Module) -> list[dict[str, Any]]:
    """A transformers model's trained weights: AdamW's and then Muon's."""
    ends = {id(part.weight) for part in (module.get_input_embeddings(), module.get_output_embeddings()) if part}
    trained = [weight for weight in module.parameters() if weight.requires_grad]
    matrices = [weight for weight in trained if weight.ndim == 2 and id(weight) not in ends]
    hidden = set(map(id, matrices))
    others = [weight for weight in trained if id(weight) not in hidden]
    groups = [{"params": others, MATRICES: False}, {"params": matrices, MATRICES: True}]
    return [group for group in groups if group["params"]]


class MuonAndAdamW(torch.optim.AdamW):
    """AdamW, but for groups of parameters with ``matrices: True``, which Muon steps.

    One optimizer, unlike ``torch.optim.Muon``, as verl's engine, checkpoints and schedule need it. Muon's learning rate
    is ``matrix_rate`` times as high. settings: AdamW's (lr, betas, weight_decay).
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
            weight.grad = None  # AdamW passes by what has none
        found = super().step(closure)
        for weight, gradient, group in stepped:
            weight.grad = gradient
            self._step_matrix(weight, gradient, group)
        return found

    def _step_matrix(self, weight: torch.Tensor, gradient: torch.Tensor, group: dict[str, Any]) -> None:
        state = self.state[weight]
        if not state:
            # AdamW looks for a step in all that it loads.
            state |= {"step": torch.tensor(0.0), "momentum": torch.zeros_like(gradient)}
        state["step"] += 1
        state["momentum"].lerp_(gradient, 1 - _MOMENTUM)
        direction = orthogonalised(gradient.lerp(state["momentum"], _MOMENTUM))  # Nesterov's
        rate = group["lr"] * self._matrix_rate
        rows, columns = weight.shape
        weight.mul_(1 - group["lr"] * group["weight_decay"])
        weight.add_(direction, alpha=-rate * math.sqrt(max(1.0, rows / columns)))


def orthogonalised(matrix: torch.Tensor) -> torch.Tensor:
    """The nearest matrix whose singular values are all about 1 (0.7 to 1.2), shape and type as given.

    A sharded matrix is gathered; the result is sharded alike.
    """
    whole = matrix.full_tensor() if isinstance(matrix, DTensor) else matrix
    # Small errors do not matter here, and GPUs are much faster in bfloat16; CPUs often are not.
    work = whole.bfloat16() if whole.is_cuda else whole.float()
    wide = work.T if work.shape[0] > work.shape[1] else work
    wide = wide / (wide.norm() + _EPSILON)
    first, second, third = _COEFFICIENTS
    for _ in range(_ITERATIONS):
        product = wide @ wide.T
        wide = first * wide + (second * product + third * product @ product) @ wide
    found = (wide.T if work.shape[0] > work.shape[1] else wide).to(whole.dtype)
    if isinstance(matrix, DTensor):
        # Every rank has computed the whole of it: none has to be sent any.
        return distribute_tensor(found, matrix.device_mesh, matrix.placements, src_data_rank=None)
    return found
