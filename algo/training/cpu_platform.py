"""verl on CPU, through verl's own registries: the same engine runs without a GPU.

Every process that runs verl loads this module by ``VERL_USE_EXTERNAL_MODULES`` and picks the
platform by ``VERL_PLATFORM`` (both in ``WORKER_ENV``). Importing it registers the platform;
``prepare_worker`` does what a training worker needs besides.
"""

import os
from contextlib import AbstractContextManager, nullcontext
from types import ModuleType
from typing import Any

import torch
from verl.plugin.platform import get_platform, set_platform
from verl.plugin.platform.platform_base import PlatformBase
from verl.plugin.platform.platform_manager import PlatformRegistry

WORKER_ENV = {"VERL_PLATFORM": "cpu", "VERL_USE_EXTERNAL_MODULES": "algo.training.cpu_platform"}
"""Environment of every process that runs verl on CPU."""


class CpuDeviceModule(ModuleType):
    """``torch.cpu``, plus the functions of ``torch.cuda`` that verl calls on its device module."""

    def __init__(self) -> None:
        super().__init__("cpu_device_module", "torch.cpu with the memory and random-state calls of torch.cuda")

    def __getattr__(self, name: str) -> Any:
        # Only called for what is not defined here; dunder names stay absent, or copying and
        # inspecting the module would run into those of torch.cpu.
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(torch.cpu, name)

    # The engine reports these after each batch. A CPU has no device memory of its own to count.
    def max_memory_allocated(self, device: Any = None) -> int:
        """Bytes of device memory at the peak: none."""
        return 0

    def max_memory_reserved(self, device: Any = None) -> int:
        """Bytes of device memory reserved at the peak: none."""
        return 0

    def memory_allocated(self, device: Any = None) -> int:
        """Bytes of device memory in use: none."""
        return 0

    def memory_reserved(self, device: Any = None) -> int:
        """Bytes of device memory reserved: none."""
        return 0

    def mem_get_info(self, device: Any = None) -> tuple[int, int]:
        """Free and total bytes of device memory: none."""
        return 0, 0

    # Checkpoints: the random numbers of the "device" are the process's own.
    def get_rng_state(self, device: Any = None) -> torch.Tensor:
        """State of torch's random numbers."""
        return torch.get_rng_state()

    def set_rng_state(self, state: torch.Tensor, device: Any = None) -> None:
        """Restore the state of torch's random numbers."""
        torch.set_rng_state(state)

    def empty_cache(self) -> None:
        """Do nothing: called after loading, saving and offloading."""

    def get_device_name(self, device: Any = None) -> str:
        """Name under which verl's table of device speeds lists a CPU."""
        return "CPU"


@PlatformRegistry.register(platform="cpu")
class CpuPlatform(PlatformBase):
    """A platform whose device is the CPU; one process is one device."""

    device_name = "cpu"
    vendor_name = "generic"
    device_module = CpuDeviceModule()

    def is_available(self) -> bool:
        """Whether it can be used: always. verl's detection asks its own accelerators first."""
        return True

    def current_device(self) -> Any:
        """The device for ``tensor.to``: "cpu", since an index would mean an accelerator."""
        return "cpu"

    def device_count(self) -> int:
        """Devices of this process."""
        return 1

    def set_device(self, device_index: int) -> None:
        """Do nothing: there is only one."""

    def synchronize(self, device_index: int | None = None) -> None:
        """Do nothing: CPU work is done when the call returns."""

    def manual_seed(self, seed: int) -> None:
        """Seed the random numbers."""
        torch.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        """Seed the random numbers."""
        torch.manual_seed(seed)

    def set_allocator_settings(self, settings: str) -> None:
        """Do nothing: the settings are those of CUDA's allocator."""

    def empty_cache(self) -> None:
        """Do nothing."""

    def get_device_capability(self, device_index: int = 0) -> tuple[int | None, int | None]:
        """No compute capability."""
        return None, None

    def communication_backend_name(self) -> str:
        """Collectives on CPU tensors."""
        return "gloo"

    def visible_devices_envvar(self) -> str:
        """Name of a variable that nothing sets: CPUs are not shared out by it."""
        return "VERL_CPU_VISIBLE_DEVICES"

    def nvtx_range(self, msg: str) -> AbstractContextManager[None]:
        """No profiler ranges."""
        return nullcontext()

    def profiler_start(self) -> None:
        """Do nothing."""

    def profiler_stop(self) -> None:
        """Do nothing."""

    def ray_resource_name(self) -> str:
        """Ray's name of the resource that a worker takes."""
        return "CPU"

    def ray_noset_envvars(self) -> list[str]:
        """No device visibility for Ray to leave alone."""
        return []

    def is_ipc_supported(self) -> bool:
        """Whether tensors can be shared by CUDA IPC: no."""
        return False

    def cudart(self) -> None:
        """No CUDA runtime."""


def select() -> None:
    """Make this process use the CPU platform, also where an accelerator is present."""
    os.environ.update(WORKER_ENV)
    if get_platform().device_name != "cpu":
        set_platform(CpuPlatform())


def prepare_worker() -> None:
    """Before a TrainingWorker is constructed on CPU: its process group.

    verl names the backends of the one that it would make "cpu:gloo,<device>:<backend>", and torch refuses to have cpu
    named twice.
    """
    torch.distributed.init_process_group(
        "gloo",
        init_method=os.environ.get("DIST_INIT_METHOD"),
        rank=int(os.environ["RANK"]),
        world_size=int(os.environ["WORLD_SIZE"]),
    )
