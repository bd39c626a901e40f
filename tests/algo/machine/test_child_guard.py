"""The guard of one command, asked to end in the very moment in which the command begins."""

import os
import subprocess
import sys
from pathlib import Path

from algo.machine import child_guard


def children_of(pid):
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def test_asked_to_end_while_its_command_begins_it_leaves_nothing_behind():
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    for _ in range(5):
        guard = subprocess.Popen([sys.executable, "-IS", child_guard.__file__, str(os.getpid()), "60", *command])
        while not (children := children_of(guard.pid)):
            assert guard.poll() is None
        guard.terminate()
        guard.wait()
        assert not any(Path(f"/proc/{child}").exists() for child in children)
