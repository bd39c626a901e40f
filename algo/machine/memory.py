"""The memory that this process may use."""

import math
from pathlib import Path

LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
"""Of a container, with control groups of version 2 and 1."""


def memory_limit() -> float:
    """Bytes that this container may use; infinite without a limit."""
    found = (limit.read_text().strip() for limit in LIMITS if limit.is_file())
    return min((int(text) for text in found if text.isdecimal()), default=math.inf)
