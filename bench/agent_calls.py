"""Overhead of the gateway on a model call: the same conversations through it and to vLLM's chat completions.

A call through the gateway is two requests of vLLM (complete, parse) and one of the gateway; a direct call is
one request, plain or with the token ids and log-probs that training needs. The fourth way is agentlightning's LLMProxy,
which stores spans in a hub. All calls use the openai package. Replies are equally long: an untrained model, cut at the
limit. The ways take turns in another order each round, with different prompts; the first round is not counted.
"""

import asyncio
import itertools
import random
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median

from openai import AsyncOpenAI
from rich.table import Table

from bench.llm_proxy import llm_proxy
from bench.tables import table_of
from runners.addresses import Addresses
from runners.agents.gateway.address import Gateway
from runners.agents.gateway.chat_server import ChatServer
from runners.policy.connections import Connections
from tests.support.agents.fakes_agents import attempt_of, resources_of
from tests.support.real_vllm import WITH_TOOLS, of_length, real_vllm

CALLS, REPLY_TOKENS, ROUNDS = 6, 24, 6
CONTEXT_TOKENS = 4096
LIMITS = {"context_tokens": CONTEXT_TOKENS, "reply_tokens": REPLY_TOKENS}
TOOL = {
    "type": "function",
    "function": {"name": "look", "description": "看一看。", "parameters": {"type": "object", "properties": {}}},
}
Way = Callable[[int], Awaitable[list[float]]]
"""Seconds of each call of one conversation."""


async def _converse(client: AsyncOpenAI, number: int, **options) -> list[float]:
    chance, taken = random.Random(number), []
    messages = [{"role": "system", "content": f"你是{chance.randint(1, 99)}号玩家。" * 20}]
    for _ in range(CALLS):
        text = f"第{chance.randint(1, 99)}天，{chance.randint(1, 99)}号请发言。" * 5
        messages.append({"role": "user", "content": text})
        started = time.perf_counter()
        answer = await client.chat.completions.create(
            model="policy", messages=messages, tools=[TOOL], max_tokens=REPLY_TOKENS, **options
        )
        taken.append(time.perf_counter() - started)
        messages.append(answer.choices[0].message.model_dump(exclude_none=True))
    return taken


@asynccontextmanager
async def _ways(vllm: str, proxy: Callable[[], Awaitable[str]]) -> AsyncIterator[dict[str, Way]]:
    """Name of the way -> client. proxy: returns the address of a new attempt at LLMProxy."""
    resources = resources_of(f"{vllm}/v1", policies=())
    servers, gateway, numbers = Connections(ChatServer.of, Addresses(vllm)), Gateway(), itertools.count(1)
    await gateway.start()
    # One HTTP client for all: a new one reads the system's certificates first, for 50 ms.
    client = AsyncOpenAI(base_url=f"{vllm}/v1", api_key="none")
    plain = {"chat_template_kwargs": {"enable_thinking": False}}

    def directly(address: str, seed: int, extra: dict, **options) -> Awaitable[list[float]]:
        to = client.with_options(base_url=address)
        return _converse(to, seed, seed=seed, temperature=1.0, extra_body=plain | extra, **options)

    async def through_gateway(seed: int) -> list[float]:
        changes = dict(limits=LIMITS, sampling_seed=seed, input=None)
        attempt = attempt_of(servers, [], next(numbers), resources, **changes)
        async with gateway.serving(attempt) as address:
            return await _converse(client.with_options(base_url=address), seed)

    async def through_proxy(seed: int) -> list[float]:
        return await directly(await proxy(), seed, {})

    try:
        yield {
            "vLLM, plainly": lambda seed: directly(f"{vllm}/v1", seed, {}),
            "vLLM, with token ids and log-probs": lambda seed: directly(
                f"{vllm}/v1", seed, {"return_token_ids": True}, logprobs=True
            ),
            "our gateway": through_gateway,
            "agentlightning's LLMProxy": through_proxy,
        }
    finally:
        await client.close()
        await gateway.close()
        await servers.close()


async def _measure(vllm: str, proxy: Callable[[], Awaitable[str]]) -> list[tuple[str, ...]]:
    async with _ways(vllm, proxy) as ways:
        seeds, cells = itertools.count(), {name: [] for name in ways}
        for at_once in (1, 8):
            took = {name: [] for name in ways}
            for number in range(ROUNDS + 1):
                for place in range(len(ways)):
                    name = [*ways][(place + number) % len(ways)]
                    found = await asyncio.gather(*(ways[name](next(seeds)) for _ in range(at_once)))
                    took[name].append(median(itertools.chain(*found)))
            medians = {name: median(values[1:]) for name, values in took.items()}
            least = next(iter(medians.values()))
            for name, value in medians.items():
                cells[name] += [f"{1000 * value:.1f}", f"{value / least:.2f}"]
    return [(name, *row) for name, row in cells.items()]


def measure(model_folder: Path) -> Table:
    settings = (f"model.path={model_folder}", *of_length(CONTEXT_TOKENS, REPLY_TOKENS), *WITH_TOOLS)
    with (
        tempfile.TemporaryDirectory() as folder,
        real_vllm(Path(folder) / "log", *settings) as url,
        llm_proxy(url) as proxy,
    ):
        rows = asyncio.run(_measure(url, proxy))
    title = f"A call of {REPLY_TOKENS} sampled tokens: milliseconds, and ratio to the plain call"
    return table_of(title, ("through", "1 at once", "ratio", "8 at once", "ratio"), rows)
