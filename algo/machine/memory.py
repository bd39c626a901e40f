"""The memory that this process may use."""

import math
from pathlib import Path

LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
"""Of a container, with control groups of version 2 and 1."""


STATISTICS = {
    Path("/sys/fs/cgroup/memory.stat"): ("anon", "kernel", "shmem"),
    Path("/sys/fs/cgroup/memory/memory.stat"): ("total_rss", "total_shmem"),
}
"""Of its use, as ``LIMITS``, with the names of what is in use."""


def free_memory() -> float:
    """Bytes of this container's limit that are not in use; infinite without a limit. Cached files count as free."""
    used = 0
    for file, names in STATISTICS.items():
        if file.is_file():
            found = dict(line.split() for line in file.read_text().splitlines())
            used = sum(int(found.get(name, 0)) for name in names)
    return memory_limit() - used


def memory_limit() -> float:
    """Bytes that this container may use; infinite without a limit."""
    found = (limit.read_text().strip() for limit in LIMITS if limit.is_file())
    return min((int(text) for text in found if text.isdecimal()), default=math.inf)
