"""How vLLM is started: its command line, its environment, and the guard that ends it with us."""

import os
import subprocess
import sys
from typing import IO, Any

from algo import child_guard
from algo.policy_version import PolicyVersionHeader
from configs.schema import Config

GIB_BYTES = 2**30
_CPU_BATCHED_TOKENS = 4096


def launch_vllm(config: Config, log: IO[bytes], grace_seconds: float) -> subprocess.Popen[bytes]:
    """Start vLLM under the guard; returns the guard's process.

    log: takes everything that vLLM prints.
    grace_seconds: what vLLM gets to end in order after the guard's SIGTERM, before it is killed.
    """
    guard = [sys.executable, "-IS", child_guard.__file__, str(os.getpid()), str(grace_seconds)]
    return subprocess.Popen(
        [*guard, *vllm_command(config)],
        env=vllm_environment(config),
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,  # Ctrl-C reaches the trainer alone, which then stops vLLM in order
    )


def vllm_command(config: Config) -> list[str]:
    """The command line that starts vLLM for ``config``, in the virtual environment that runs us."""
    settings = config.serving
    options: dict[str, Any] = {
        "--model": config.model.path.resolve(),
        "--served-model-name": settings.served_model_name,
        "--host": settings.host,
        "--port": settings.port,
        "--dtype": config.model.dtype,
        "--max-model-len": config.game.context_tokens,
        "--max-num-seqs": settings.max_concurrent_sequences,
        "--seed": config.run.seed,
        # What was sampled from, after temperature and masks: the trainer recomputes the same.
        "--logprobs-mode": "processed_logprobs",
        # Sampling defaults in the model folder would change the distribution unasked.
        "--generation-config": "vllm",
        "--middleware": f"{PolicyVersionHeader.__module__}.{PolicyVersionHeader.__qualname__}",
    }
    # A runner without the model's files asks for the tokenizer; it needs the added vocabulary to disarm players' words.
    flags = ["--enable-prefix-caching", "--disable-uvicorn-access-log", "--enable-tokenizer-info-endpoint"]
    if config.training.device == "cpu":
        # Unlike VLLM_CPU_KVCACHE_SPACE this takes fractions of a GiB. One engine process instead of an
        # engine and a worker saves a third of the start-up; vllm_environment has the other half of it.
        options["--kv-cache-memory-bytes"] = int(settings.kv_cache_gb * GIB_BYTES)
        options["--distributed-executor-backend"] = "uni"
        # Seeded requests whose prompt is prefilled in chunks kill vLLM 0.28 on CPU: it rewinds a CUDA
        # generator's offset, which a CPU generator does not have. So prompts are prefilled whole.
        flags += ["--enforce-eager", "--no-enable-chunked-prefill"]
        options["--max-num-batched-tokens"] = max(config.game.context_tokens, _CPU_BATCHED_TOKENS)
    else:
        options["--gpu-memory-utilization"] = settings.gpu_memory_utilization
    # Not the `vllm` command: it looks up package metadata that vllm-cpu does not have.
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", *flags]
    for option, value in options.items():
        command += [option, str(value)]
    return command


def vllm_environment(config: Config) -> dict[str, str]:
    """The environment that vLLM is started with: ours, and what the command line cannot say."""
    environment = dict(os.environ)
    environment |= {
        "VLLM_SERVER_DEV_MODE": "1",  # opens the endpoints for weight pushes
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",  # the model is a local folder
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONUNBUFFERED": "1",
    }
    if config.training.device == "cpu":
        environment.pop("VLLM_CPU_KVCACHE_SPACE", None)  # it would override serving.kv_cache_gb
        environment["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        # A core is left to the runners: with every core busy, OpenMP's barriers make small models
        # several times slower.
        cores = len(os.sched_getaffinity(0))
        environment.setdefault("OMP_NUM_THREADS", str(max(1, cores - 1)))
        environment.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    return environment
