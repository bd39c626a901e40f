"""What the gateway adds to a call of a model: the same conversations through it, and at vLLM's chat completions.

A call through the gateway is two requests of vLLM (complete, parse) and one of the gateway; directly it is one, as an
agent makes it that nobody trains, and again one that asks for what training needs: token ids and log-probs. The fourth
way is agentlightning's LLMProxy, which stores spans in a hub.
All are made with the openai package. Replies are as long, token by token: of an untrained model, cut at the limit. The
ways take turns, no two with the same words, in another order each round; a first round is not counted.
"""

import asyncio
import random
import tempfile
import time
from pathlib import Path
from statistics import median

from agentlightning import Attempt as StoredAttempt
from agentlightning import AttemptedRollout
from openai import AsyncOpenAI
from rich.table import Table

from bench.llm_proxy import Proxy, llm_proxy
from bench.tables import table_of
from runners.addresses import Addresses
from runners.agents.gateway.address import Gateway
from runners.agents.gateway.attempt import Attempt
from runners.agents.gateway.chat_server import ChatServer
from runners.policy.servers import Connections
from store.agents import AgentTask
from store.schema import PolicyResources

# isort: split
from tests.support.real_vllm import WITH_TOOLS, of_length, real_vllm

WAYS = {
    "plain": "vLLM, plainly",
    "tokens": "vLLM, asked for token ids and log-probs",
    "gateway": "our gateway",
    "proxy": "agentlightning's LLMProxy",
}
CALLS, REPLY_TOKENS, ROUNDS = 6, 24, 6
CONTEXT_TOKENS = 4096
TOOL = {
    "type": "function",
    "function": {"name": "look", "description": "看一看。", "parameters": {"type": "object", "properties": {}}},
}


async def _converse(client: AsyncOpenAI, chance: random.Random, **options) -> list[float]:
    """Seconds of each call of one conversation."""
    messages = [{"role": "system", "content": f"你是{chance.randint(1, 99)}号玩家。" * 20}]
    taken = []
    for _ in range(CALLS):
        messages.append(
            {"role": "user", "content": f"第{chance.randint(1, 99)}天，{chance.randint(1, 99)}号请发言。" * 5}
        )
        started = time.perf_counter()
        answer = await client.chat.completions.create(
            model="policy", messages=messages, tools=[TOOL], max_tokens=REPLY_TOKENS, **options
        )
        taken.append(time.perf_counter() - started)
        messages.append(answer.choices[0].message.model_dump(exclude_none=True))
    return taken


class _Measured:
    """All ways to the same vLLM."""

    def __init__(self, url: str, proxy: Proxy):
        self._url = url
        self._proxy = proxy
        self._resources = PolicyResources(run_name="bench", version=0, endpoints=(f"{url}/v1",), model="policy")
        self._servers = Connections(ChatServer.of, Addresses(url))
        self._gateway = Gateway()
        self._attempts = 0

    async def __aenter__(self) -> "_Measured":
        await self._gateway.start()
        self._direct = AsyncOpenAI(base_url=f"{self._url}/v1", api_key="none")
        self._agents = AsyncOpenAI(base_url=self._gateway.address, api_key="none")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._direct.close()
        await self._agents.close()
        await self._gateway.close()
        await self._servers.close()

    async def plain(self, seed: int) -> list[float]:
        extra = {"chat_template_kwargs": {"enable_thinking": False}}
        return await _converse(self._direct, random.Random(seed), seed=seed, temperature=1.0, extra_body=extra)

    async def with_tokens(self, seed: int) -> list[float]:
        extra = {"return_token_ids": True, "chat_template_kwargs": {"enable_thinking": False}}
        options = {"logprobs": True, "seed": seed, "temperature": 1.0, "extra_body": extra}
        return await _converse(self._direct, random.Random(seed), **options)

    async def through_gateway(self, seed: int) -> list[float]:
        self._attempts += 1
        name = f"rollout-{self._attempts}"
        stored = StoredAttempt(rollout_id=name, attempt_id="attempt", sequence_id=1, start_time=0.0)
        rollout = AttemptedRollout(rollout_id=name, input={}, start_time=0.0, attempt=stored)
        task = AgentTask(
            task_id=name,
            group_id=name,
            input=None,
            sampling_seed=seed,
            limits={"context_tokens": CONTEXT_TOKENS, "reply_tokens": REPLY_TOKENS},
        )
        attempt = Attempt(rollout, task, self._resources, self._servers, lambda *_: None)
        async with self._gateway.serving(attempt) as address:
            # The same connections for all: a client of its own would first read the system's certificates, for 50 ms.
            return await _converse(self._agents.with_options(base_url=address), random.Random(seed))

    async def through_proxy(self, seed: int) -> list[float]:
        (address,) = await self._proxy.attempts(1)
        options = {"seed": seed, "temperature": 1.0}
        extra = {"chat_template_kwargs": {"enable_thinking": False}}
        client = self._agents.with_options(base_url=address)
        return await _converse(client, random.Random(seed), extra_body=extra, **options)


async def _round(measured: _Measured, at_once: int, number: int) -> dict[str, float]:
    """Seconds of a call, the median of all, by the way that it went."""
    ways = [
        ("plain", measured.plain),
        ("tokens", measured.with_tokens),
        ("gateway", measured.through_gateway),
        ("proxy", measured.through_proxy),
    ]
    found = {}
    for place in range(len(ways)):
        name, way = ways[(place + number) % len(ways)]
        seeds = [1000 * (len(ways) * number + place) + n for n in range(at_once)]
        taken = await asyncio.gather(*map(way, seeds))
        found[name] = median(value for one in taken for value in one)
    return found


async def _measure(url: str, proxy: Proxy) -> dict[int, dict[str, float]]:
    async with _Measured(url, proxy) as measured:
        found = {}
        for at_once in (1, 8):
            rounds = [await _round(measured, at_once, number) for number in range(ROUNDS + 1)][1:]
            found[at_once] = {name: median(one[name] for one in rounds) for name in rounds[0]}
        return found


def measure(model_folder: Path) -> Table:
    """Start vLLM and agentlightning's proxy, converse all ways."""
    settings = (f"model.path={model_folder}", *of_length(CONTEXT_TOKENS, REPLY_TOKENS), *WITH_TOOLS)
    with (
        tempfile.TemporaryDirectory() as folder,
        real_vllm(Path(folder) / "log", *settings) as url,
        llm_proxy(url) as proxy,
    ):
        found = asyncio.run(_measure(url, proxy))
    rows = []
    for way, name in WAYS.items():
        figures = [(taken[way], taken[way] - taken["plain"], taken[way] / taken["plain"]) for taken in found.values()]
        cells = ((f"{1000 * took:.1f}", f"{1000 * added:.1f}", f"{ratio:.2f}") for took, added, ratio in figures)
        rows.append((name, *(cell for each in cells for cell in each)))
    title = f"A call of {REPLY_TOKENS} sampled tokens: milliseconds, and times that of the same call made plainly"
    columns = (column for at_once in found for column in (f"{at_once} at once", "added", "ratio"))
    return table_of(title, ("through", *columns), rows)
