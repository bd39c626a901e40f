"""What the machine has: memory and rates, measured where they can be, assumed where a GPU is not here."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import psutil
import torch

GIB = 2**30
H100_GIB = 79.2
"""What CUDA says of an H100 of 80 GB."""


@dataclass(frozen=True)
class Machine:
    """gpus: here; 0 on a machine without. gpu_gib, host_gib: memory of each GPU, and of the machine; infinite
    where it is not known, since the run's GPUs are elsewhere.

    flops: matrix products a second, of a GPU or of all cores, in the model's precision. bandwidth: bytes a second of
    the memory that serves (a GPU's, or the machine's). disk: bytes a second through a folder.
    measured: False for an H100's rates, where there is no GPU to ask.
    """

    gpus: int
    gpu_gib: float
    host_gib: float
    flops: float
    bandwidth: float
    disk: float = 2e9
    measured: bool = True


def this_machine(
    device: str, dtype: str, rates: bool = True, gpu_gib: float | None = None, host_gib: float | None = None
) -> Machine:
    """The machine that this process runs on, for a run on "cpu" or "cuda".

    rates: measure them, which takes a second; else those of an H100 stand in.
    gpu_gib, host_gib: plan for GPUs, for a machine, of this memory.
    """
    gpus = torch.cuda.device_count() if device == "cuda" else 0
    elsewhere = device == "cuda" and not gpus
    host = host_gib or (math.inf if elsewhere else psutil.virtual_memory().total / GIB)
    gpu = gpu_gib or (torch.cuda.mem_get_info(0)[1] / GIB if gpus else math.inf)
    if elsewhere or not rates:
        return Machine(gpus, gpu, host, flops=7e14, bandwidth=3.0e12, measured=False)
    where = torch.device("cuda", 0) if gpus else torch.device("cpu")
    return Machine(gpus, gpu, host, *_rates(where, getattr(torch, dtype)))


def _rates(device: torch.device, dtype: torch.dtype) -> tuple[float, float]:
    """Matrix products and bytes copied a second, the best of a few tries."""
    size, copied = (8192, 2**30) if device.type == "cuda" else (1024, 2**27)
    matrix = torch.randn(size, size, device=device, dtype=dtype)
    block = torch.empty(copied, device=device, dtype=torch.uint8)
    product = _seconds(lambda: matrix @ matrix, device)
    copy = _seconds(lambda: block.clone(), device)
    return 2 * size**3 / product, 2 * copied / copy


def _seconds(call: Callable[[], object], device: torch.device) -> float:
    best = float("inf")
    for _ in range(5):
        started = time.perf_counter()
        call()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        best = min(best, time.perf_counter() - started)
    return best
