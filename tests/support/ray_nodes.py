"""A Ray cluster of several nodes on this machine, joined by `ray start` as machines are."""

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import psutil
import ray


@contextlib.contextmanager
def ray_cluster_of(nodes, cpus_each):
    """Start it and let RAY_ADDRESS name it; all that was started ends with the context."""
    # Short: the paths of sockets lie below.
    directory = tempfile.mkdtemp(prefix="ray-", dir="/tmp")
    started = []
    try:
        head, text = start_node(directory, cpus_each, "--head", "--port=0", "--include-dashboard=false")
        started.append(head)
        address = re.search(r"--address='([^']+)'", text).group(1)
        for _ in range(nodes - 1):
            started.append(start_node(None, cpus_each, f"--address={address}")[0])
        os.environ["RAY_ADDRESS"] = address
        yield address
    finally:
        os.environ.pop("RAY_ADDRESS", None)
        ray.shutdown()
        for process in started:
            # On SIGTERM a node drains for half a minute first.
            for each in [*psutil.Process(process.pid).children(recursive=True), process]:
                with contextlib.suppress(psutil.NoSuchProcess):  # it may end by itself once those before it are gone
                    each.kill()
            process.wait(timeout=60)
        shutil.rmtree(directory, ignore_errors=True)


def start_node(directory, cpus, *options):
    """A node and what its start printed."""
    command = [str(Path(sys.executable).with_name("ray")), "start", "--block", f"--num-cpus={cpus}", "--num-gpus=0"]
    if directory is not None:
        command.append(f"--temp-dir={directory}")
    process = subprocess.Popen(
        [*command, "--disable-usage-stats", *options],
        # Nodes and this process must agree on whether tokens are required; Ray decides it here.
        env=os.environ | {"RAY_AUTH_MODE": os.environ.get("RAY_AUTH_MODE", "disabled")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    lines = []
    for line in process.stdout:
        lines.append(line)
        if "--block" in line:  # "This command will now block": the node is up.
            break
    else:
        raise RuntimeError(f"{' '.join(process.args)} ended:\n{''.join(lines)}")
    threading.Thread(target=process.stdout.read, daemon=True).start()
    return process, "".join(lines)
