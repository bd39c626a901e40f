"""A game's turns through the stock hub: our bulk upload of new tokens, against full id lists.

The baseline is the stock client's ``add_many_spans`` with every turn's whole prompt, in the attributes that
agentlightning's adapter reads. Reported: bytes of request bodies, CPU seconds of the hub's process.
"""

import asyncio
import gzip
import json
import tempfile
from collections import defaultdict
from pathlib import Path

import psutil
from agentlightning import LightningStoreClient, Span
from rich.table import Table

from bench.recorded import record_game
from bench.tables import ratio_rows, table_of
from store import protocol
from store.client import connect
from store.otlp import encode_otlp
from store.token_spans import to_span
from store.werewolf import TurnSpan
from tests.support.hub.hub_process import StockHub

GAMES = 5
PRESET = "12p_sheriff"


def _both_ways(turns: list[TurnSpan], rollout_id: str, attempt_id: str) -> tuple[list[protocol.Span], list[Span]]:
    """(our spans, spans with full id lists) of the same turns."""
    ours, full = [], []
    sequences: dict[tuple[str, int], list[int]] = defaultdict(list)  # (actor, segment) -> token ids up to its last turn
    for number, turn in enumerate(turns):
        ids = dict(rollout_id=rollout_id, attempt_id=attempt_id, sequence_id=number + 1)
        ours.append(to_span(turn, **ids, start_time=1.7e9, end_time=1.7e9))
        sequence = sequences[turn.actor, turn.segment]
        sequence += turn.prompt_ids
        sampled = zip(turn.response_ids, turn.logprobs, strict=True)
        logprobs = [{"token": f"token_id:{token_id}", "logprob": logprob} for token_id, logprob in sampled]
        attributes = {
            "gen_ai.request.model": turn.policy,
            "gen_ai.response.id": f"{rollout_id}/{turn.actor}/{turn.turn}",
            "gen_ai.completion.0.content": turn.reply,
            "prompt_token_ids": list(sequence),
            "response_token_ids": list(turn.response_ids),
            "logprobs.content": json.dumps(logprobs),
        }
        named = {"name": "openai.chat.completion", "attributes": attributes}
        full.append(Span.from_attributes(**dict(ours[-1]) | named))
        sequence += turn.response_ids
    return ours, full


async def _costs(folder: Path, turns: list[TurnSpan]) -> tuple[list[float], list[float]]:
    """[megabytes, CPU seconds of the hub] of a game, sent our way and the stock way."""
    stock = await StockHub(folder).start()
    hub, client, other = psutil.Process(stock.process.pid), connect(stock.url), LightningStoreClient(stock.url)
    costs = [0.0, 0.0], [0.0, 0.0]
    for _ in range(GAMES):
        for of_ours, cost in zip((True, False), costs, strict=True):
            await client.enqueue_many_rollouts([protocol.EnqueueRolloutRequest(input={})])
            (rollout,) = await client.dequeue_many_rollouts()
            key = (rollout.rollout_id, rollout.attempt.attempt_id)
            ours, full = _both_ways(turns, *key)
            before = sum(hub.cpu_times()[:2])
            if of_ours:
                size = len(gzip.compress(encode_otlp({key: ours}).SerializeToString()))
                await client.upload_spans(ours)
            else:
                size = sum(len(json.dumps(span.model_dump(mode="json"))) for span in full)
                await other.add_many_spans(full)
            cost[0] += size / 1e6 / GAMES
            cost[1] += (sum(hub.cpu_times()[:2]) - before) / GAMES
    await client.close()
    await other.close()
    stock.kill()
    return costs


def measure(model_folder: Path) -> Table:
    _, turns = asyncio.run(record_game(PRESET, 0, model_folder))
    with tempfile.TemporaryDirectory() as folder:
        ours, full = asyncio.run(_costs(Path(folder), turns))
    rows = ratio_rows(zip(("MB sent", "CPU seconds of the hub"), ours, full, strict=True))
    title = f"One {PRESET} game of {len(turns)} turns through the hub"
    return table_of(title, ("what", "ours", "full id lists", "ours / other"), rows)
