"""The Ray cluster of the training ranks."""

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
from ray._private.state import available_resources_per_node  # verl counts with it, too
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy
from verl.single_controller.ray import RayResourcePool
from verl.single_controller.ray.base import sort_placement_group_by_node_ip

from algo.machine.ports import ray_node_address
from algo.machine.secrets import without_secrets
from algo.serving.control import CONTROL_VARIABLE, control_token
from algo.serving.launch import pool_servers, visible_gpus
from algo.training import cpu_platform
from configs.schema import Config
from configs.section import ConfigError
from configs.sections.training import TrainingConfig


def connect(config: Config) -> Path | None:
    """Use the Ray cluster in RAY_ADDRESS, or that of this process; else start a local one.

    Returns the folder of a cluster that was started here, else None.
    """
    if ray.is_initialized():
        return None
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "WARNING"}
    if os.environ.get("RAY_ADDRESS"):
        ray.init(**quiet)
        return None
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # By default Ray gives workers a low priority.
    os.environ.setdefault("RAY_worker_niceness", "0")
    # Ray's own metrics are unused, and have crashed a raylet with its run (Ray 2.60: SIGSEGV in OpenTelemetry's
    # buildMetrics).
    os.environ.setdefault("RAY_enable_metrics_collection", "0")
    os.environ.setdefault("RAY_AUTH_TOKEN_PATH", str(_token_file()))
    # A short path, since those of Ray's sockets may not exceed 107 characters; a private folder around Ray's own, which
    # everyone can access (0777).
    directory = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))
    gpus, given = training_gpus(config), os.environ.get("CUDA_VISIBLE_DEVICES")
    with without_secrets():
        if gpus is not None:  # Ray has no other setting for its GPUs
            os.environ["CUDA_VISIBLE_DEVICES"] = gpus
        try:
            ray.init(
                address="local",
                # verl reserves one CPU per rank, more than a small machine may have; the number is only nominal.
                num_cpus=max(os.cpu_count() or 1, config.training.ranks + 1),
                include_dashboard=False,
                _temp_dir=str(directory / "r"),
                **quiet,
            )
        finally:
            os.environ.pop("CUDA_VISIBLE_DEVICES", None)
            if given is not None:
                os.environ["CUDA_VISIBLE_DEVICES"] = given
    return directory


@lru_cache
def _token_file() -> Path:
    """A private token for Ray clusters of this process, which listen on all interfaces.

    Ray's default token is shared by all runs of a user and readable by everyone on the machine.
    """
    directory = Path(tempfile.mkdtemp(prefix="ray-token-", dir="/tmp"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    file = directory / "token"
    with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as opened:
        opened.write(secrets.token_hex(32))
    return file


def training_gpus(config: Config) -> str | None:
    """CUDA_VISIBLE_DEVICES for a Ray cluster started here: the GPUs that the settings give to no vLLM; None on CPU.

    With ``serving.share_gpus`` those of the policy's servers are included, and come first: Ray assigns them in order.
    """
    if config.training.device == "cpu":
        return None
    serving = config.serving
    first = range(config.started_servers * serving.tensor_parallel)
    of_policy = set(serving.devices or first) if serving.mode == "start" else set()
    of_others = {gpu for one in (*config.frozen.values(), *pool_servers(config)) for gpu in one.devices or ()}
    taken = of_others - of_policy if serving.share_gpus else of_others | of_policy
    names = visible_gpus() or map(str, range(torch.cuda.device_count()))
    free = [(number, name) for number, name in enumerate(names) if number not in taken]
    return ",".join(name for _, name in sorted(free, key=lambda one: one[0] not in of_policy))


_SHARE = ". A GPU of a vLLM that this machine starts is not counted: with serving.share_gpus=true training uses it, too"


def resource_pool(training: TrainingConfig) -> RayResourcePool:
    """A pool with one place per rank, grouped by machine.

    Raises ConfigError when the cluster has no room for them: verl would wait forever.
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
            f"{needed} on each node, but the Ray cluster has {len(nodes)} node(s): {shown}. Add machines with "
            f"`ray start --address=...`, or lower training.ranks{_SHARE if 'GPU' in wanted else ''}"
        )
    free = [*available_resources_per_node().values()]
    if sum(min(int(node.get(name, 0) // count) for name, count in wanted.items()) for node in free) < training.nodes:
        shown = "; ".join(", ".join(f"{node.get(name, 0):g} {name}" for name in wanted) for node in free) or "none"
        raise ConfigError(
            f"{needed} on each node, but only {shown} of the Ray cluster's nodes are free: stop other jobs "
            f"(`ray list actors`), or lower training.ranks"
        )
    return RayResourcePool(
        process_on_nodes=[per_node] * training.nodes, use_gpu=training.device != "cpu", max_colocate_count=1
    )


def meeting_point(pool: RayResourcePool, device: str) -> tuple[str, str]:
    """Address and port on the machine of the first rank, at which the ranks find each other.

    verl would choose them by a task whose process imports verl and torch, ten seconds of a core, and a port that
    another connection may take before the ranks start.
    """
    first = sort_placement_group_by_node_ip(pool.get_placement_groups(device_name=device))[0]
    where = PlacementGroupSchedulingStrategy(placement_group=first, placement_group_bundle_index=0)
    address, port = ray.get(ray.remote(ray_node_address).options(scheduling_strategy=where).remote())
    return address, str(port)


def worker_environment(training: TrainingConfig) -> dict[str, str]:
    """Environment variables of every training rank."""
    # Rank 0 needs the control token to transfer weights between GPUs.
    environment = {"TOKENIZERS_PARALLELISM": "false", CONTROL_VARIABLE: control_token()}
    if training.device == "cpu":
        # Ray's default is one thread per worker; the ranks share the machine's cores instead.
        threads = max(1, (os.cpu_count() or 1) // (training.ranks // training.nodes))
        # Passive waiting: on a busy machine, spinning threads made small batches ten times slower.
        environment |= cpu_platform.WORKER_ENV | {"OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "PASSIVE"}
        environment |= _allocator()
    return environment


def _allocator() -> dict[str, str]:
    """Environment variables that load jemalloc, which Ray has for profiles of its memory.

    An aligned allocation of glibc before 2.38 leaves a small free block, and each later one passes over all of these:
    updates of Gemma-3-270M took 6.6 s at first and 17 s after two hundred, four tenths of it in malloc. The options
    keep freed pages for a minute; without the first or the last jemalloc returns blocks above 8 MB at once, and an
    update has 150,000 to 300,000 page faults a second.
    """
    library = Path(ray.__file__).parent / "core" / "libjemalloc.so"
    if "LD_PRELOAD" in os.environ or not library.is_file():
        return {}
    return {"LD_PRELOAD": str(library), "MALLOC_CONF": "oversize_threshold:0,dirty_decay_ms:60000,muzzy_decay_ms:-1"}
