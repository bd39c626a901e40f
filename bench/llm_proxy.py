"""agentlightning's own LLMProxy before a vLLM, with a stock hub for its spans: what the gateway is measured against.

``python -m bench.llm_proxy HUB VLLM PORT`` is the proxy's process: it sets up tracing for all of its process.
"""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import aiohttp
import psutil

from algo.machine.ports import free_port

START_SECONDS = 300.0


class Proxy:
    """A running LLMProxy. ``address`` is its base URL, ``hub`` that of its store."""

    def __init__(self, address: str, hub: str):
        self.address = address
        self._hub = hub

    async def attempts(self, count: int) -> list[str]:
        """Base URLs, ending in /v1, of attempts that it may store spans of."""
        from store.client import connect

        client = connect(self._hub)
        await client.wait_until_reachable()
        made = [await client.start_rollout(input={}) for _ in range(count)]
        await client.close()
        return [f"{self.address}/rollout/{one.rollout_id}/attempt/{one.attempt.attempt_id}/v1" for one in made]


@contextmanager
def llm_proxy(vllm: str) -> Iterator[Proxy]:
    """A proxy before the vLLM at this base URL, until the end of the block. TimeoutError where it does not start."""
    ports = free_port(), free_port()
    hub, address = (f"http://127.0.0.1:{port}" for port in ports)
    environment = {**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": environment, "start_new_session": True}
    commands = (
        [str(Path(sys.executable).with_name("agl")), "store", "--host", "127.0.0.1", "--port", str(ports[0])],
        [sys.executable, "-m", "bench.llm_proxy", hub, f"{vllm}/v1", str(ports[1])],
    )
    processes = [subprocess.Popen(command, **quiet) for command in commands]
    try:
        asyncio.run(_until_healthy(f"{address}/health/liveliness", processes))
        yield Proxy(address, hub)
    finally:
        for process in processes:  # the proxy's own child outlives it
            children = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
            process.terminate()
            process.wait()
            for child in children:
                if child.is_running():
                    child.kill()


async def _until_healthy(url: str, processes: list[subprocess.Popen]) -> None:
    deadline = time.monotonic() + START_SECONDS
    async with aiohttp.ClientSession(trust_env=False) as http:
        while time.monotonic() < deadline:
            if any(process.poll() is not None for process in processes):
                raise TimeoutError("the hub or agentlightning's LLMProxy has ended: is litellm[proxy] installed?")
            try:
                async with http.get(url) as answer:
                    if answer.status < 500:
                        return
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.5)
    raise TimeoutError(f"agentlightning's LLMProxy has not started within {START_SECONDS:g} s")


async def _serve(hub: str, endpoint: str, port: int) -> None:
    from agentlightning import LightningStoreClient, LLMProxy

    parameters = {"model": "hosted_vllm/policy", "api_base": endpoint, "api_key": "none"}
    models = [{"model_name": "policy", "litellm_params": parameters}]
    proxy = LLMProxy(port=port, host="127.0.0.1", model_list=models, store=LightningStoreClient(hub))
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    await proxy.start()
    await ended.wait()
    await proxy.stop()


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1], sys.argv[2], int(sys.argv[3])))
