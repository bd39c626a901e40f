"""A real vLLM, for tests and benches."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from algo.machine.ports import free_port
from algo.serving.launch import launch_vllm, policy_launches
from configs.loading import load_config

START_SECONDS = 600  # a minute on two cores that nothing else uses


@contextmanager
def real_vllm(log: Path, *settings: str) -> Iterator[str]:
    """Serve until the end of the block, with settings as ``--set`` takes them. Gives the base URL, without path.

    Raises RuntimeError, with the end of the log, where the server ends instead of answering.
    """
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with log.open("wb") as written:
        config = load_config(None, [*settings, f"serving.port={port}"])
        process = launch_vllm(config, written, 2, policy_launches(config)[0])
        try:
            deadline = time.monotonic() + START_SECONDS
            while not _is_healthy(url):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"vLLM does not answer: {log.read_text(errors='replace')[-4000:]}")
                time.sleep(0.5)  # it takes half a minute
            yield url
        finally:
            process.terminate()
            process.wait()


def of_length(context_tokens: int, reply_tokens: int) -> tuple[str, ...]:
    """Settings for calls of so many tokens, and little memory."""
    return (
        f"rollout.context_tokens={context_tokens}",
        f"training.max_sequence_tokens={context_tokens}",
        f"rollout.reply_tokens={reply_tokens}",
        "serving.kv_cache_gb=0.5",
    )


WITH_TOOLS = ("serving.tool_parser=hermes", "serving.reasoning_parser=qwen3")
"""Settings by which replies are parsed as those of Qwen3."""


def _is_healthy(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health", trust_env=False).is_success
    except httpx.TransportError:
        return False
