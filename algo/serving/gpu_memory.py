"""Weights that vLLM reads from the trainer's own GPU memory (CUDA IPC), without a pickle on the way.

Over HTTP vLLM's engine "ipc" takes the handles of the memory as a pickle alone, which runs whatever the sender put into
it. This one takes them as JSON, and nothing else: numbers, and the bytes that CUDA knows a piece of memory by. It is
registered with vLLM's ``WeightTransferEngineFactory`` by being imported, which ``--worker-extension-cls`` has each of
vLLM's workers do. Nothing else of vLLM's engine changes.
"""

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory
from vllm.distributed.weight_transfer.ipc_engine import IPCWeightTransferEngine, IPCWeightTransferUpdateInfo

BACKEND = "ipc_json"

Handle = tuple[Any, ...]
"""What torch's ``reduce_tensor`` says of a tensor on a GPU: the arguments of its ``rebuild_cuda_tensor``."""


def _numbers(value: Any) -> tuple[int, ...]:
    return tuple(_number(each) for each in value)


def _number(value: Any) -> int:
    if type(value) is not int:
        raise ValueError(f"{value!r} is no whole number")
    return value


def _flag(value: Any) -> bool:
    if type(value) is not bool:
        raise ValueError(f"{value!r} is neither true nor false")
    return value


_FIXED = {0: torch.Tensor, 4: torch.TypedStorage, 5: torch.uint8}
"""By position: vLLM packs weights of all types into one buffer of bytes."""

_BYTES = (7, 11, 13)
"""Positions of CUDA's handles: of the memory, of the counter of its readers, of the event after which it is written."""

_PLAIN: Mapping[int, Callable[[Any], Any]] = {
    1: _numbers,  # shape
    2: _numbers,  # stride
    3: _number,  # where it begins in its storage
    6: _number,  # GPU, which vLLM's worker replaces by its own
    8: _number,  # bytes of the storage
    9: _number,  # where that begins in the memory
    10: _flag,  # whether it has gradients
    12: _number,  # which of the counters
    14: _flag,  # whether to wait for the event
}


def as_json(handle: Handle) -> list[Any]:
    """A handle as JSON can hold it. ValueError for one of anything but a buffer of bytes."""
    for position, expected in _FIXED.items():
        if handle[position] is not expected:
            raise ValueError(f"only memory of packed bytes is handed over, not {handle[position]}")
    rest: dict[int, Any] = {position: check(handle[position]) for position, check in _PLAIN.items()}
    rest |= {position: base64.b64encode(handle[position]).decode("ascii") for position in _BYTES}
    return [rest[position] for position in sorted(rest)]


def from_json(fields: Sequence[Any]) -> Handle:
    """The handle that ``as_json`` made into that. ValueError for anything else."""
    positions = sorted([*_PLAIN, *_BYTES])
    if not isinstance(fields, list) or len(fields) != len(positions):
        raise ValueError(f"a handle of GPU memory has {len(positions)} parts")
    handle: dict[int, Any] = dict(_FIXED)
    for position, field in zip(positions, fields, strict=True):
        if position in _BYTES:
            if not isinstance(field, str):
                raise ValueError(f"{field!r} is no text")
            handle[position] = base64.b64decode(field, validate=True)
        else:
            handle[position] = _PLAIN[position](field)
    return tuple(handle[position] for position in sorted(handle))


@dataclass
class JsonUpdateInfo(IPCWeightTransferUpdateInfo):
    """What one chunk of packed weights is made of; ``ipc_handles`` by GPU, each as ``as_json`` has it."""

    def __post_init__(self) -> None:
        if self.ipc_handles_pickled is not None or not isinstance(self.ipc_handles, dict):
            raise ValueError("handles of GPU memory come as JSON, by GPU; a pickle is never read")
        self.ipc_handles = {gpu: from_json(fields) for gpu, fields in self.ipc_handles.items()}
        super().__post_init__()


class JsonIpcEngine(IPCWeightTransferEngine):
    """vLLM's engine "ipc" with handles as JSON."""

    update_info_cls = JsonUpdateInfo


class Registration:
    """Nothing: what a worker is extended by, so that it imports this module."""


WeightTransferEngineFactory.register_engine(BACKEND, JsonIpcEngine)
