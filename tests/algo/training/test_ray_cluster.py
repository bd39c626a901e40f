"""A Ray of our own gives nothing away: a folder and a token of its own, no secrets for its children."""

import json
import os
import subprocess
import sys

import pytest

from algo.training.ray_cluster import worker_environment
from configs.sections.training import TrainingConfig

SCRIPT = """
import json, os, sys
from pathlib import Path
import psutil, ray
from algo.training import ray_cluster
from configs.schema import Config

directory = ray_cluster.connect(Config())

@ray.remote
def environment():
    return dict(os.environ)

def environ_of(process):
    return Path(f"/proc/{process.pid}/environ").read_bytes().decode(errors="replace")

seen = ray.get(environment.remote())
children = psutil.Process().children(recursive=True)
print(json.dumps({
    "names": sorted({child.name() for child in children}),
    "secrets": [child.name() for child in children if "only-for-us" in environ_of(child)]
    + [name for name, value in seen.items() if "only-for-us" in value],
    "ours": os.environ["AGL_TOKEN"],
    "mode": oct(directory.stat().st_mode & 0o777),
    "token": oct(os.stat(os.environ["RAY_AUTH_TOKEN_PATH"]).st_mode & 0o777),
    "in_force": seen["RAY_AUTH_MODE"], "gcs": ray.get_runtime_context().gcs_address,
}), flush=True)
sys.stdin.readline()
"""
STRANGER = "import ray; ray.init(address={gcs!r}, logging_level='ERROR'); print('in')"


pytestmark = pytest.mark.ray


@pytest.fixture
def cluster(tmp_path):
    secrets = {"AGL_TOKEN": "only-for-us", "OPENAI_API_KEY": "only-for-us"}
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT], env=environment | secrets | {"HOME": str(tmp_path)},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    yield json.loads(process.stdout.readline()), environment | {"HOME": str(tmp_path)}
    process.communicate("\n")


def test_a_ray_that_is_started_here_keeps_to_itself(cluster, tmp_path):
    found, environment = cluster
    assert "raylet" in found["names"] and found["secrets"] == []
    assert (found["ours"], found["mode"], found["token"]) == ("only-for-us", "0o700", "0o600")
    assert found["in_force"] == "token"
    assert not (tmp_path / ".ray" / "auth_token").exists()
    # Another process of the machine that does not know the token.
    environment |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "guessed"}
    stranger = STRANGER.format(gcs=found["gcs"])
    joined = subprocess.run([sys.executable, "-c", stranger], env=environment, capture_output=True, text=True)
    assert "in" not in joined.stdout.split() and "uthentication" in joined.stderr


def test_ranks_on_cpu_allocate_with_jemalloc(monkeypatch):
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    environment = worker_environment(TrainingConfig(device="cpu"))
    program = "print('libjemalloc' in open('/proc/self/maps').read())"
    ran = subprocess.run([sys.executable, "-c", program], env={**os.environ, **environment}, capture_output=True)
    assert (ran.stdout, ran.stderr) == (b"True\n", b"")  # the library reports invalid options
    assert "LD_PRELOAD" not in worker_environment(TrainingConfig(device="cuda"))
    monkeypatch.setenv("LD_PRELOAD", "another allocator")
    assert "LD_PRELOAD" not in worker_environment(TrainingConfig(device="cpu"))
