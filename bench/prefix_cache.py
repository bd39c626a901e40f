"""How much of its prompts vLLM finds in its prefix cache over one 12-player game of the tiny model.

The model's weights are random, so it answers noise within the format's limits; what is measured is the growth of
prompts, which does not depend on what is said. The cache works in whole blocks (128 tokens on CPU), so the share
is lower than the share of tokens that were sent before, which is shown beside it.
"""

import asyncio
import re
import tempfile
from pathlib import Path

import httpx
from rich.table import Table

from runners.policy.chat_tokens import ChatTokens
from runners.policy.model import TokenExactChatModel
from runners.policy.server import PolicyServer
from runners.werewolf.game import Side, get_preset
from runners.werewolf.players import PolicyPlayer
from runners.werewolf.prompts_zh.system import system_prompt
from runners.werewolf.table import play_game
from store.schema import TRAINED_POLICY
from store.werewolf import GameTask, TurnSpan

# isort: split
from tests.support.real_vllm import of_length, real_vllm

PRESET, SEED = "12p_sheriff", 7
CONTEXT_TOKENS, REPLY_TOKENS = 12_288, 40


async def _play(url: str, model_folder: Path) -> list[TurnSpan]:
    preset, tokens = get_preset(PRESET), await ChatTokens.load(model_folder)
    server = PolicyServer(f"{url}/v1", "policy", 1.0)
    task = GameTask(
        game_id="prefix-cache",
        group_id="prefix-cache",
        seed=SEED,
        sampling_seed=SEED,
        preset=PRESET,
        rules={"round_limit": 3},
        seating=dict.fromkeys(Side, TRAINED_POLICY),
        trainable=frozenset(),
        limits={"context_tokens": CONTEXT_TOKENS, "reply_tokens": REPLY_TOKENS},
    )

    def seat_player(seat, role, name) -> PolicyPlayer:
        model = TokenExactChatModel(server, tokens, task.limits, f"{SEED}/{seat}")
        return PolicyPlayer(seat, model, system_prompt(preset, seat, role))

    turns: list[TurnSpan] = []
    try:
        await play_game(task, 0, seat_player, lambda turn, *times: turns.append(turn))
    finally:
        await server.close()
    return turns


def _counter(metrics: str, name: str) -> float:
    found = re.findall(rf"^vllm:{name}_total{{[^}}]*}} ([0-9.e+]+)$", metrics, re.MULTILINE)
    assert found, f"vLLM reports no {name}"
    return sum(map(float, found))


async def _measure(url: str, model_folder: Path) -> tuple[list[TurnSpan], float, float]:
    turns = await _play(url, model_folder)
    async with httpx.AsyncClient(trust_env=False) as client:
        metrics = (await client.get(f"{url}/metrics")).text
    return turns, _counter(metrics, "prefix_cache_queries"), _counter(metrics, "prefix_cache_hits")


def measure(model_folder: Path) -> Table:
    """Start vLLM, play one game, read its own counters."""
    shape = (*of_length(CONTEXT_TOKENS, REPLY_TOKENS), "serving.kv_cache_gb=2")
    with (
        tempfile.TemporaryDirectory() as folder,
        real_vllm(Path(folder) / "log", f"model.path={model_folder}", *shape) as url,
    ):
        turns, queried, hit = asyncio.run(_measure(url, model_folder))
    prompts = sum(turn.context_tokens + len(turn.prompt_ids) for turn in turns)
    sent_before = sum(turn.context_tokens for turn in turns)
    table = Table(title=f"vLLM's prefix cache over one {PRESET} game, {len(turns)} calls", title_justify="left")
    for column in ("prompt tokens", "sent before", "found in the cache", "share found"):
        table.add_column(column, justify="right")
    table.add_row(
        f"{prompts:,}", f"{sent_before / prompts:.1%}", f"{hit:,.0f} of {queried:,.0f}", f"{hit / queried:.1%}"
    )
    return table
