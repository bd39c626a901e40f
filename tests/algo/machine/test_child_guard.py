"""The guard of one command: whatever ends, nothing of the command's group stays."""

import subprocess
import sys
import time
from pathlib import Path

import psutil

from algo.machine import child_guard

GUARD = [sys.executable, "-IS", child_guard.__file__, "60"]
# A process with a child, like vLLM's API server with its engine; both ignore SIGTERM.
STUBBORN = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
open(sys.argv[1], "w").write(f"{os.getpid()} {child.pid}")
time.sleep(600)
"""


def children_of(pid):
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def test_sigterm_while_the_command_begins_leaves_nothing_behind():
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    for _ in range(5):
        guard = subprocess.Popen([*GUARD, *command], stdin=subprocess.PIPE)
        while not (children := children_of(guard.pid)):
            assert guard.poll() is None
        guard.terminate()
        guard.wait()
        assert not any(Path(f"/proc/{child}").exists() for child in children)


def test_a_parent_that_is_killed_takes_the_group_along(tmp_path):
    pids = tmp_path / "pids"
    command = [*GUARD, sys.executable, "-c", STUBBORN, str(pids)]
    parent = f"import subprocess, time; guard = subprocess.Popen({command!r}, stdin=subprocess.PIPE); time.sleep(600)"
    process = subprocess.Popen([sys.executable, "-c", parent])
    while not pids.exists() or len(pids.read_text().split()) < 2:
        assert process.poll() is None
        time.sleep(0.05)  # the file is another program's
    group = [psutil.Process(int(pid)) for pid in pids.read_text().split()]
    process.kill()
    process.wait()
    assert psutil.wait_procs(group, timeout=10)[1] == []


def test_a_guard_that_is_killed_takes_its_command_along():
    guard = subprocess.Popen([*GUARD, sys.executable, "-c", "import time; time.sleep(600)"], stdin=subprocess.PIPE)
    while not (children := children_of(guard.pid)):
        assert guard.poll() is None
    command = psutil.Process(int(children[0]))
    guard.kill()
    guard.wait()
    assert psutil.wait_procs([command], timeout=10)[1] == []
