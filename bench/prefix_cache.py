"""Share of prompt tokens that vLLM finds in its prefix cache over one 12-player game of the tiny model.

The weights are random; the growth of prompts does not depend on the replies. The cache works in whole blocks (128
tokens on CPU), so the share is lower than the share of tokens that were sent before, which is shown, too.
"""

import asyncio
import re
import tempfile
from pathlib import Path

import httpx
from rich.table import Table

from algo.serving.control import control_headers
from bench.recorded import play_served, task_of
from bench.tables import table_of
from runners.addresses import Addresses
from runners.policy.chat_tokens import ChatTokens
from runners.policy.client import PolicyClient
from runners.werewolf.game import Side
from store.werewolf import TurnSpan
from tests.support.real_vllm import of_length, real_vllm

PRESET, SEED = "12p_sheriff", 7
LIMITS = {"context_tokens": 12_288, "reply_tokens": 40}


def _counter(metrics: str, name: str) -> float:
    found = re.findall(rf"^vllm:{name}_total{{[^}}]*}} ([0-9.e+]+)$", metrics, re.MULTILINE)
    assert found, f"vLLM reports no {name}"
    return sum(map(float, found))


async def _measure(url: str, model_folder: Path) -> tuple[list[TurnSpan], float, float]:
    server = PolicyClient(f"{url}/v1", "policy", 1.0, Addresses(url))
    servers = dict.fromkeys(Side, server)
    task = task_of(PRESET, SEED, LIMITS, round_limit=3)
    turns = await play_served(task, await ChatTokens.load(model_folder), servers)
    await server.close()
    async with httpx.AsyncClient(trust_env=False) as client:
        answer = await client.get(f"{url}/metrics", headers=control_headers(started_here=True))
    metrics = answer.raise_for_status().text
    return turns, _counter(metrics, "prefix_cache_queries"), _counter(metrics, "prefix_cache_hits")


def measure(model_folder: Path) -> Table:
    shape = (*of_length(**LIMITS), "serving.kv_cache_gb=2")
    with (
        tempfile.TemporaryDirectory() as folder,
        real_vllm(Path(folder) / "log", f"model.path={model_folder}", *shape) as url,
    ):
        turns, queried, hit = asyncio.run(_measure(url, model_folder))
    prompts = sum(turn.context_tokens + len(turn.prompt_ids) for turn in turns)
    sent_before = sum(turn.context_tokens for turn in turns)
    title = f"vLLM's prefix cache over one {PRESET} game, {len(turns)} calls"
    figures = (f"{prompts:,}", f"{sent_before / prompts:.1%}", f"{hit:,.0f} of {queried:,.0f}", f"{hit / queried:.1%}")
    return table_of(title, ("prompt tokens", "sent before", "found in the cache", "share found"), [figures])
