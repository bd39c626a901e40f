"""Weights that vLLM reads from the trainer's GPU memory (CUDA IPC), without a pickle. Experimental: not run on GPUs.

Over HTTP vLLM's engine "ipc" takes the handles of the memory as a pickle alone, which runs any code that its sender put
there. This one takes JSON: numbers, and the bytes by which CUDA names a piece of memory. vLLM's workers import this
module, which registers the engine, by ``--worker-extension-cls``. Nothing else of vLLM's engine changes.
"""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory
from vllm.distributed.weight_transfer.ipc_engine import IPCWeightTransferEngine, IPCWeightTransferUpdateInfo

BACKEND = "ipc_json"

Handle = tuple[Any, ...]
"""Of a tensor on a GPU by torch's ``reduce_tensor``: the arguments of its ``rebuild_cuda_tensor``."""

_FIXED = {0: torch.Tensor, 4: torch.TypedStorage, 5: torch.uint8}
"""By position: vLLM packs weights of all types into one buffer of bytes."""

_TYPES: dict[int, type] = {
    1: tuple,  # shape
    2: tuple,  # stride
    3: int,  # offset in its storage
    6: int,  # GPU, which vLLM's worker replaces by its own
    7: bytes,  # CUDA's handle of the memory
    8: int,  # bytes of the storage
    9: int,  # offset of the storage in the memory
    10: bool,  # whether it has gradients
    11: bytes,  # CUDA's handle of the counter of its readers
    12: int,  # which of the counters
    13: bytes,  # CUDA's handle of the event after which it is written
    14: bool,  # whether to wait for the event
}


def as_json(handle: Handle) -> list[Any]:
    """A handle as JSON can hold it. ValueError for one of anything but a buffer of bytes."""
    for position, expected in _FIXED.items():
        if handle[position] is not expected:
            raise ValueError(f"only memory of packed bytes is handed over, not {handle[position]}")
    return [_to_json(handle[position], kind) for position, kind in _TYPES.items()]


def from_json(fields: Sequence[Any]) -> Handle:
    """The handle that ``as_json`` encoded. ValueError for anything else."""
    if not isinstance(fields, list) or len(fields) != len(_TYPES):
        raise ValueError(f"a handle of GPU memory has {len(_TYPES)} parts")
    read = {at: _from_json(field, kind) for field, (at, kind) in zip(fields, _TYPES.items(), strict=True)}
    return tuple(value for _, value in sorted((_FIXED | read).items()))


def _to_json(value: Any, kind: type) -> Any:
    if kind is bytes:
        return base64.b64encode(value).decode("ascii")
    return list(map(int, value)) if kind is tuple else value


def _from_json(value: Any, kind: type) -> Any:
    if kind is tuple and isinstance(value, list):
        return tuple(_from_json(each, int) for each in value)
    if kind is bytes and isinstance(value, str):
        return base64.b64decode(value, validate=True)
    if kind in (int, bool) and type(value) is kind:
        return value
    raise ValueError(f"{value!r} is no {kind.__name__}")


@dataclass
class JsonUpdateInfo(IPCWeightTransferUpdateInfo):
    """One chunk of packed weights; ``ipc_handles`` by GPU, each as ``as_json`` has it."""

    def __post_init__(self) -> None:
        if self.ipc_handles_pickled is not None or not isinstance(self.ipc_handles, dict):
            raise ValueError("handles of GPU memory come as JSON, by GPU; a pickle is never read")
        self.ipc_handles = {gpu: from_json(fields) for gpu, fields in self.ipc_handles.items()}
        super().__post_init__()


class JsonIpcEngine(IPCWeightTransferEngine):
    """vLLM's engine "ipc" with handles as JSON."""

    update_info_cls = JsonUpdateInfo


class Registration:
    """An empty worker extension, by which vLLM's workers import this module."""


WeightTransferEngineFactory.register_engine(BACKEND, JsonIpcEngine)
