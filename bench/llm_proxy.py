"""agentlightning's own LLMProxy before a vLLM, with a stock hub for its spans: what the gateway is measured against.

``python -m bench.llm_proxy HUB VLLM PORT`` is the proxy's process: it sets up tracing for all of its process.
"""

import asyncio
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil

from algo.machine.ports import free_port
from store.client import connect
from tests.support.hub.hub_process import StockHub
from tests.support.processes import wait_until

START_SECONDS = 300.0


class Proxy:
    """A running LLMProxy. ``address`` is its base URL, ``hub`` that of its store."""

    def __init__(self, address: str, hub: str):
        self.address = address
        self._hub = hub

    async def attempts(self, count: int) -> list[str]:
        """Base URLs, ending in /v1, of attempts that it may store spans of."""
        client = connect(self._hub)
        await client.wait_until_reachable()
        made = [await client.start_rollout(input={}) for _ in range(count)]
        await client.close()
        return [f"{self.address}/rollout/{one.rollout_id}/attempt/{one.attempt.attempt_id}/v1" for one in made]


@contextmanager
def llm_proxy(vllm: str) -> Iterator[Proxy]:
    """A proxy before the vLLM at this base URL, until the end of the block. AssertionError where it does not start."""
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryDirectory() as folder:
        hub = StockHub(Path(folder))
        asyncio.run(hub.start())
        command = [sys.executable, "-m", "bench.llm_proxy", hub.url, f"{vllm}/v1", str(port)]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

        def is_up() -> bool:
            assert process.poll() is None, "agentlightning's LLMProxy has ended: is litellm[proxy] installed?"
            try:
                return httpx.get(f"{address}/health/liveliness", trust_env=False).status_code < 500
            except httpx.TransportError:
                return False

        try:
            wait_until(is_up, START_SECONDS, "the start of agentlightning's LLMProxy")
            yield Proxy(address, hub.url)
        finally:
            # Its own child outlives it.
            family = [*psutil.Process(process.pid).children(recursive=True), process] if process.poll() is None else []
            for each in family:
                each.kill()
            process.wait()
            hub.kill()


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
