"""The Ray cluster that the training ranks run on."""

import atexit
import os
import secrets
import shutil
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any

import ray
import torch
from verl.single_controller.ray import RayResourcePool

from algo.machine.secrets import without_secrets
from algo.serving.control import CONTROL_VARIABLE, control_token
from algo.training import cpu_platform
from configs.schema import Config
from configs.section import ConfigError
from configs.sections.training import TrainingConfig


def connect(config: Config) -> Path | None:
    """Connect to the Ray cluster that RAY_ADDRESS names, or that this process is connected to; else start a local one.

    Returns the folder of the Ray that was started here, else None.
    """
    if ray.is_initialized():
        return None
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "WARNING"}
    if os.environ.get("RAY_ADDRESS"):
        ray.init(**quiet)
        return None
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Ray puts workers behind everything else on the machine; here they are what the machine is for.
    os.environ.setdefault("RAY_worker_niceness", "0")
    # Nobody reads what Ray measures of itself, and collecting it has killed a raylet, and the run with it (Ray 2.60:
    # SIGSEGV in OpenTelemetry's buildMetrics).
    os.environ.setdefault("RAY_enable_metrics_collection", "0")
    os.environ.setdefault("RAY_AUTH_TOKEN_PATH", str(_token_file()))
    # Ray's sockets lie below this folder, and a socket's path may not exceed 107 characters. Ray opens its own folder
    # to everyone (0777), so it gets one inside a folder that is ours alone.
    directory = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))
    gpus = training_gpus(config)
    with without_secrets():
        if gpus is not None:  # Ray looks nowhere else for the GPUs that it may use
            os.environ["CUDA_VISIBLE_DEVICES"] = gpus
        try:
            ray.init(
                address="local",
                # verl takes one CPU per rank; Ray's CPUs are tickets, and a small machine may have too few.
                num_cpus=max(os.cpu_count() or 1, config.training.ranks + 1),
                include_dashboard=False,
                _temp_dir=str(directory / "r"),
                **quiet,
            )
        finally:
            if gpus is not None:
                del os.environ["CUDA_VISIBLE_DEVICES"]
    return directory


@lru_cache
def _token_file() -> Path:
    """The token of all Rays that this process starts, which listen on every interface whatever the configuration.

    Ray's own is one for all runs of a user, and everybody on the machine can read it. A process reads one file.
    """
    directory = Path(tempfile.mkdtemp(prefix="ray-token-", dir="/tmp"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    file = directory / "token"
    with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as opened:
        opened.write(secrets.token_hex(32))
    return file


def training_gpus(config: Config) -> str | None:
    """GPUs of a Ray that is started here, as CUDA_VISIBLE_DEVICES names them: those that serving leaves free.

    None for all: on CPU, where both share the GPUs, where vLLM runs elsewhere, and where CUDA_VISIBLE_DEVICES is set.
    """
    serving = config.serving
    shared = config.training.device == "cpu" or serving.share_gpus or serving.mode == "attach"
    if shared or "CUDA_VISIBLE_DEVICES" in os.environ:
        return None
    taken = serving.devices or range(serving.servers * serving.tensor_parallel)
    return ",".join(str(number) for number in range(torch.cuda.device_count()) if number not in taken)


def resource_pool(training: TrainingConfig) -> RayResourcePool:
    """One place for each rank, those of a machine side by side.

    Raises ConfigError when the cluster cannot hold them: verl would wait for ever.
    """
    per_node = training.ranks // training.nodes
    wanted = {"CPU": per_node} | ({"GPU": per_node} if training.device != "cpu" else {})
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    places = sum(min(int(node.get(name, 0) // count) for name, count in wanted.items()) for node in nodes)
    needed = f"training.ranks={training.ranks} on training.nodes={training.nodes} needs " + " and ".join(
        f"{count} {name}" for name, count in wanted.items()
    )
    if places < training.nodes:
        shown = "; ".join(", ".join(f"{node.get(name, 0):g} {name}" for name in wanted) for node in nodes)
        raise ConfigError(
            f"{needed} on each node, and the Ray cluster has {len(nodes)} node(s): {shown}. Add machines with "
            f"`ray start --address=...`, or lower training.ranks"
        )
    free = ray.available_resources()
    for name, count in wanted.items():
        if free.get(name, 0) < count * training.nodes:
            raise ConfigError(
                f"{needed} on each node, and others hold all but {free.get(name, 0):g} {name} of the Ray cluster: stop "
                f"what runs there (`ray list actors`), or lower training.ranks"
            )
    return RayResourcePool(
        process_on_nodes=[per_node] * training.nodes, use_gpu=training.device != "cpu", max_colocate_count=1
    )


def worker_environment(training: TrainingConfig) -> dict[str, str]:
    """Environment variables of every training rank."""
    # Rank 0 gives weights to servers that this process started, where they do not travel through a folder.
    environment = {"TOKENIZERS_PARALLELISM": "false", CONTROL_VARIABLE: control_token()}
    if training.device == "cpu":
        # Ray would give each worker one thread; the ranks share the machine's cores instead.
        threads = max(1, (os.cpu_count() or 1) // (training.ranks // training.nodes))
        # And wait for one another without spinning: on a busy machine, waiting threads that hold a core
        # from the one they wait for made small batches ten times slower.
        environment |= cpu_platform.WORKER_ENV | {"OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "PASSIVE"}
    return environment
