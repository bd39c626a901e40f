"""agentlightning's LLMProxy before a vLLM, with a stock hub for its spans: the baseline of the gateway.

``python -m bench.llm_proxy HUB VLLM PORT`` is the proxy's process, since tracing is set up per process.
"""

import asyncio
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil
from agentlightning import LightningStoreClient, LLMProxy

from algo.machine.ports import free_port
from store.client import connect
from tests.support.hub.hub_process import StockHub
from tests.support.processes import start_module, wait_until

START_SECONDS = 300.0


@contextmanager
def llm_proxy(vllm: str) -> Iterator[Callable[[], Awaitable[str]]]:
    """A proxy before the vLLM at this base URL, until the end of the block.

    Yields a function that creates an attempt in the hub and returns its base URL, ending in /v1.
    """
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryDirectory() as folder:
        hub, log = StockHub(Path(folder)), Path(folder) / "proxy.log"
        asyncio.run(hub.start())
        process = start_module(log, "bench.llm_proxy", hub.url, f"{vllm}/v1", str(port))

        def is_up() -> bool:
            assert process.poll() is None, f"LLMProxy has ended; is litellm[proxy] installed? {log.read_text()[-2000:]}"
            try:
                return httpx.get(f"{address}/health/liveliness", trust_env=False).status_code < 500
            except httpx.TransportError:
                return False

        async def attempt() -> str:
            client = connect(hub.url)
            made = await client.start_rollout(input={})
            await client.close()
            return f"{address}/rollout/{made.rollout_id}/attempt/{made.attempt.attempt_id}/v1"

        try:
            wait_until(is_up, START_SECONDS, "the start of agentlightning's LLMProxy")
            yield attempt
        finally:
            if process.poll() is None:  # its own child outlives it
                for each in psutil.Process(process.pid).children(recursive=True):
                    each.kill()
                process.kill()
            process.wait()
            hub.kill()


async def _serve(hub: str, endpoint: str, port: int) -> None:
    parameters = {"model": "hosted_vllm/policy", "api_base": endpoint, "api_key": "none"}
    models = [{"model_name": "policy", "litellm_params": parameters}]
    await LLMProxy(port=port, host="127.0.0.1", model_list=models, store=LightningStoreClient(hub)).start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1], sys.argv[2], int(sys.argv[3])))
