"""The CPU platform as verl sees it."""

import os
import subprocess
import sys

import psutil
import pytest
import torch

from algo.training import cpu_platform as platform_cpu


@pytest.mark.slow  # it imports all of verl once more
def test_the_environment_alone_brings_the_platform_and_its_engine_into_a_process():
    # As in a Ray worker: nothing of ours is imported by name, and the group needs a rendezvous.
    code = """
import torch
from verl.utils.device import get_device_id, get_device_name, get_torch_device
from verl.utils.distributed import initialize_global_process_group_ray
assert (get_device_name(), get_device_id()) == ("cpu", "cpu")
import sys
sys.modules["algo.training.cpu_platform"].prepare_worker()
initialize_global_process_group_ray()
from algo.training.engines import register_engines
register_engines()
from verl.workers.engine import EngineRegistry
print(EngineRegistry.get_engine_cls("language_model", "fsdp2").__name__, torch.distributed.get_backend())
assert get_torch_device().max_memory_allocated() == 0
assert torch.ones(1).to(get_device_id()).device.type == "cpu"
"""
    group = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    output = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | platform_cpu.WORKER_ENV | group,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert output.stdout.split() == ["ChunkedLanguageModelEngine", "gloo"], output.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="of glibc")
def test_freed_memory_returns_to_the_system():
    process = psutil.Process()
    # Below the size at which glibc maps a block of its own.
    blocks = [torch.ones(20_000) for _ in range(4_000)]
    full = process.memory_info().rss
    del blocks[:-1]  # the last block keeps the heap from shrinking by itself
    platform_cpu.release_memory()
    assert full - process.memory_info().rss > 250e6
