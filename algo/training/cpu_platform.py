"""The platform "cpu" in verl's registry.

verl imports this module by ``VERL_USE_EXTERNAL_MODULES``, which registers the platform, and selects it by
``VERL_PLATFORM``.
"""

import ctypes
import os
from contextlib import nullcontext
from types import ModuleType
from typing import Any

import torch
from verl.plugin.platform import get_platform, set_platform
from verl.plugin.platform.platform_base import PlatformBase
from verl.plugin.platform.platform_manager import PlatformRegistry

WORKER_ENV = {"VERL_PLATFORM": "cpu", "VERL_USE_EXTERNAL_MODULES": "algo.training.cpu_platform"}
"""Environment variables of verl on CPU."""


_FREE_BYTES_KEPT = 2**30


class _Mallinfo2(ctypes.Structure):
    # In bytes; see mallinfo(3).
    _fields_ = (
        *((f"other_{number}", ctypes.c_size_t) for number in range(8)),
        ("fordblks", ctypes.c_size_t),
        ("keepcost", ctypes.c_size_t),
    )


def release_memory() -> None:
    """Return freed memory to the system if there is more than a GiB of it, as ``torch.cuda.empty_cache``.

    glibc keeps it in pieces, of which tensors of other lengths use few: a trainer of Gemma-3-270M grew by a gigabyte in
    each step. Less is kept, since faulting it in again took a fifth of the time of a small model's updates. Does
    nothing without glibc 2.33 or newer.
    """
    library = ctypes.CDLL(None)
    mallinfo = getattr(library, "mallinfo2", None)
    if mallinfo is None:
        return
    mallinfo.restype = _Mallinfo2
    if mallinfo().fordblks > _FREE_BYTES_KEPT:
        library.malloc_trim(0)


# torch.cpu, with the functions of torch.cuda that verl calls.
_device_module = ModuleType("cpu_device_module")
_device_module.__dict__.update(
    {name: getattr(torch.cpu, name) for name in dir(torch.cpu) if not name.startswith("__")},
    **{f"{what}memory_{state}": lambda device=None: 0 for what in ("", "max_") for state in ("allocated", "reserved")},
    mem_get_info=lambda device=None: (0, 0),
    get_rng_state=lambda device=None: torch.get_rng_state(),
    set_rng_state=torch.set_rng_state,
    empty_cache=release_memory,
    get_device_name=lambda device=None: "CPU",  # as verl's table of device speeds lists it
)


def _returning(value: Any) -> Any:
    return lambda self, *arguments, **named: value


@PlatformRegistry.register(platform="cpu")
class CpuPlatform(PlatformBase):
    """One process is one device."""

    device_name, vendor_name, device_module = "cpu", "generic", _device_module
    is_available = _returning(True)
    is_ipc_supported = _returning(False)
    current_device = _returning("cpu")  # for ``tensor.to``, where an index is an accelerator
    device_count = _returning(1)
    get_device_capability = _returning((None, None))
    communication_backend_name = _returning("gloo")
    visible_devices_envvar = _returning("VERL_CPU_VISIBLE_DEVICES")  # unused: CPUs are not assigned
    ray_resource_name = _returning("CPU")
    ray_noset_envvars = _returning([])
    nvtx_range = _returning(nullcontext())
    manual_seed = manual_seed_all = staticmethod(torch.manual_seed)
    set_device = synchronize = set_allocator_settings = _returning(None)
    empty_cache = staticmethod(release_memory)
    profiler_start = profiler_stop = cudart = _returning(None)


def select() -> None:
    """Select the platform in this process, even if it has an accelerator."""
    os.environ.update(WORKER_ENV)
    if get_platform().device_name != "cpu":
        set_platform(CpuPlatform())


def prepare_worker() -> None:
    """Create the process group before verl does: torch rejects verl's backends "cpu:gloo,cpu:gloo"."""
    torch.distributed.init_process_group(
        "gloo",
        init_method=os.environ.get("DIST_INIT_METHOD"),
        rank=int(os.environ["RANK"]),
        world_size=int(os.environ["WORLD_SIZE"]),
    )
