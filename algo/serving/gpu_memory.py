"""Weight transfer from the trainer's GPU memory to vLLM (CUDA IPC) without a pickle. Experimental: not run on GPUs.

vLLM's engine "ipc" accepts handles over HTTP only as a pickle, which can run arbitrary code. This subclass accepts
JSON: numbers, and CUDA's handles as bytes. vLLM's workers import this module by ``--worker-extension-cls``, which
registers the engine.
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
"""Arguments of torch's ``rebuild_cuda_tensor``, from its ``reduce_tensor``."""

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
    11: bytes,  # CUDA's handle of the reference counter
    12: int,  # index of the counter
    13: bytes,  # CUDA's handle of the event after the write
    14: bool,  # whether to wait for the event
}


def as_json(handle: Handle) -> list[Any]:
    """A handle as JSON data. Raises ValueError for anything but a buffer of bytes."""
    for position, expected in _FIXED.items():
        if handle[position] is not expected:
            raise ValueError(f"only packed bytes can be transferred, not {handle[position]}")
    return [_to_json(handle[position], kind) for position, kind in _TYPES.items()]


def from_json(fields: Sequence[Any]) -> Handle:
    """The handle from ``as_json``. Raises ValueError for anything else."""
    if not isinstance(fields, list) or len(fields) != len(_TYPES):
        raise ValueError(f"a handle of GPU memory must be a list of {len(_TYPES)} parts")
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
    raise ValueError(f"{value!r} is not a {kind.__name__}")


@dataclass
class JsonUpdateInfo(IPCWeightTransferUpdateInfo):
    """One chunk of packed weights; ``ipc_handles`` by GPU, each as ``as_json`` has it."""

    def __post_init__(self) -> None:
        if self.ipc_handles_pickled is not None or not isinstance(self.ipc_handles, dict):
            raise ValueError("handles of GPU memory must be JSON, by GPU; pickles are rejected")
        self.ipc_handles = {gpu: from_json(fields) for gpu, fields in self.ipc_handles.items()}
        super().__post_init__()


class JsonIpcEngine(IPCWeightTransferEngine):
    """vLLM's engine "ipc" with handles as JSON."""

    update_info_cls = JsonUpdateInfo


class Registration:
    """An empty worker extension, by which vLLM's workers import this module."""


WeightTransferEngineFactory.register_engine(BACKEND, JsonIpcEngine)
