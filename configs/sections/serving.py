"""Settings of the vLLM servers of the trained policy and of frozen policies."""

from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator, model_validator

from configs.section import Section
from store.addresses import problem_with_base_url

LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""Values of vLLM's ``--max-lora-rank``."""


def _check_base_url(url: str) -> str:
    if problem := problem_with_base_url(url):
        raise ValueError(problem)
    if url.rstrip("/").endswith("/v1"):
        raise ValueError("remove /v1: it is added")
    return url


class ServingConfig(Section):
    """The vLLM servers of the trained policy."""

    mode: Literal["start", "attach"] = Field("start", description="start vLLM here, or attach to running servers")
    servers: int = Field(1, ge=1, description="vLLM servers to start; each seat of a game stays with one of them")
    tensor_parallel: int = Field(1, ge=1, description="GPUs of each started server")
    devices: tuple[int, ...] | None = Field(
        None,
        description="GPUs of the started servers, tensor_parallel for each, in the order of policies and servers; "
        "null: from GPU 0 on",
    )
    share_gpus: bool = Field(
        False,
        description="serve and train on the same GPUs: vLLM sleeps during updates; needs rollout.max_policy_lag 0",
    )
    weight_transfer: Literal["folder", "nccl", "ipc"] = Field(
        "folder",
        description="how new weights reach vLLM: through a folder that it reads. Experimental: ipc (CUDA IPC, with "
        "share_gpus) and nccl (between GPUs, not run yet)",
    )
    port: int = Field(
        8000, ge=1, le=65535, description="loopback port of the first started vLLM; the others use the next ones"
    )
    urls: tuple[str, ...] = Field((), description="base URLs, without /v1, of the vLLM servers to attach to")
    public_urls: tuple[str, ...] = Field(
        (),
        description="base URLs, without /v1, that runners use, one for each server; for runners on other machines a "
        "reverse proxy that forwards only /v1/, /tokenize, /detokenize and /tokenizer_info",
    )
    tool_parser: str | None = Field(
        None,
        description="vLLM's --tool-call-parser, for agents that call tools; Qwen3: hermes",
    )
    reasoning_parser: str | None = Field(
        None, description="vLLM's --reasoning-parser, which removes thoughts from agents' replies; Qwen3: qwen3"
    )
    kv_cache_gb: float = Field(1.0, gt=0, description="memory of the KV cache on CPU, in GiB")
    gpu_memory_utilization: float = Field(
        0.8,
        gt=0,
        le=1,
        description="share of each GPU's memory that vLLM may take; with share_gpus it sleeps while the trainer works, "
        "and the rest holds the trainer's CUDA context and checkpoint buffers",
    )
    kv_offload_gb: float = Field(
        0,
        ge=0,
        description="CPU memory for blocks evicted from the GPU's KV cache, in GiB for each started server (vLLM's "
        "--kv-offloading-size); 12 seats of many games need more than a GPU has",
    )
    max_concurrent_sequences: int = Field(64, ge=1, description="sequences that a server decodes at once")
    start_timeout_seconds: float = Field(600, gt=0, description="how long vLLM may take to become healthy")
    max_restarts: int = Field(
        3, ge=0, description="maximum number of vLLM restarts for each policy, counted in one process"
    )
    logprob_tolerance: float | None = Field(
        None,
        gt=0,
        description="largest mean difference between vLLM's and the trainer's log-probs, in nats per token, for "
        "sampled turns and for a probe sequence after each push. The run also stops if the 99 % quantile exceeds ten "
        "times it, or the KL twice its square (at least 1e-7): the sampled policy would not be the trained one. "
        "Default: 0.0001 in float32, 0.05 in bfloat16",
    )

    @field_validator("urls", "public_urls")
    @classmethod
    def _are_base_urls(cls, urls: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(map(_check_base_url, urls))

    @model_validator(mode="after")
    def _servers_are_named(self) -> "ServingConfig":
        if self.mode == "attach" and not self.urls:
            raise ValueError(
                "serving.mode is 'attach': set serving.urls to the running vLLM, e.g. [http://127.0.0.1:8000]"
            )
        if self.mode == "start" and self.urls:
            raise ValueError("serving.urls needs serving.mode=attach; a vLLM started here uses serving.port")
        if self.public_urls and len(self.public_urls) != self.server_count:
            raise ValueError(f"serving.public_urls has {len(self.public_urls)} entries for {self.server_count} servers")
        if self.port + self.servers > 65536:
            raise ValueError("serving.port is too high for that many servers; lower it")
        return self

    @property
    def server_count(self) -> int:
        return len(self.urls) if self.mode == "attach" else self.servers


class FrozenPolicyConfig(Section):
    """A frozen policy, sampled in token ids like the trained one: an earlier checkpoint, a base model."""

    path: Path | None = Field(None, description="Hugging Face model folder, served by a vLLM that the run starts")
    url: str | None = Field(None, description="base URL, without /v1, of a running vLLM that serves it")
    model: str = Field("policy", description="the model's name at url")
    kv_cache_gb: float = Field(0.5, gt=0, description="memory of the KV cache on CPU, in GiB")
    gpu_memory_utilization: float = Field(0.2, gt=0, le=1, description="share of a GPU's memory that vLLM may take")
    devices: tuple[int, ...] | None = Field(None, description="GPUs of that vLLM; null: GPU 0")

    @field_validator("url")
    @classmethod
    def _is_a_base_url(cls, url: str | None) -> str | None:
        return None if url is None else _check_base_url(url)

    @model_validator(mode="after")
    def _is_served_once(self) -> "FrozenPolicyConfig":
        if (self.path is None) == (self.url is None):
            raise ValueError("set either path, to start a vLLM, or url, to use a running one")
        return self
