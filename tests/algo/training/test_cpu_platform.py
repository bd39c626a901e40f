"""The CPU platform as verl sees it."""

import sys

import psutil
import pytest
import torch

from algo.training import cpu_platform as platform_cpu


@pytest.mark.skipif(sys.platform != "linux", reason="of glibc")
def test_much_freed_memory_returns_to_the_system_and_little_is_kept(monkeypatch):
    process = psutil.Process()

    def released(count):
        # Below the size at which glibc maps a block of its own. Those that stay keep glibc from shrinking the heap.
        blocks = [torch.ones(20_000) for _ in range(count)]
        stay = blocks[::100]
        del blocks
        before = process.memory_info().rss
        platform_cpu.release_memory()
        after = process.memory_info().rss
        del stay
        return before - after

    assert released(16_000) > 1e9
    monkeypatch.setattr(platform_cpu, "_FREE_BYTES_KEPT", 2**50)
    assert released(4_000) < 1e8
