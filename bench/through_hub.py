"""A game's turns through the stock hub: our bulk upload of what is new, against full id lists.

The other way is what the stock client offers: ``add_many_spans`` with every turn's whole prompt, in the attributes
that agentlightning's own adapter reads. Bytes of the request bodies, and CPU seconds of the hub's process.
"""

import asyncio
import gzip
import json
import tempfile
from pathlib import Path

import psutil
from rich.table import Table

from store.client import connect, encode_otlp
from store.token_spans import to_span
from store.werewolf import TurnSpan

# isort: split
from agentlightning import EnqueueRolloutRequest, Span

from bench.recorded import record_game
from bench.tables import ratio_rows, table_of
from tests.support.hub.hub_process import StockHub

GAMES = 5
PRESET = "12p_sheriff"


class FullTokenSpans:
    """Makes each turn's span with its whole prompt."""

    def __init__(self) -> None:
        self._sequences: dict[tuple[str, int], list[int]] = {}  # (actor, segment) -> everything up to its last turn

    def of_turn(self, turn: TurnSpan, span: Span) -> Span:
        """span: of the same turn, as we send it."""
        sequence = self._sequences.setdefault((turn.actor, turn.segment), [])
        sequence += turn.prompt_ids
        logprobs = [
            {"token": f"token_id:{token_id}", "logprob": logprob}
            for token_id, logprob in zip(turn.response_ids, turn.logprobs, strict=True)
        ]
        attributes = {
            "gen_ai.request.model": turn.policy,
            "gen_ai.response.id": f"{span.rollout_id}/{turn.actor}/{turn.turn}",
            "gen_ai.completion.0.content": turn.reply,
            "prompt_token_ids": list(sequence),
            "response_token_ids": list(turn.response_ids),
            "logprobs.content": json.dumps(logprobs),
        }
        sequence += turn.response_ids
        return span.model_copy(update={"name": "openai.chat.completion", "attributes": attributes})


def spans_both_ways(turns: list[TurnSpan], rollout_id: str, attempt_id: str) -> tuple[list[Span], list[Span]]:
    """(our spans, spans with full id lists) of the same turns."""
    ours, full, with_whole_prompts = [], [], FullTokenSpans()
    for number, turn in enumerate(turns):
        ids = dict(rollout_id=rollout_id, attempt_id=attempt_id, sequence_id=number + 1)
        ours.append(to_span(turn, **ids, start_time=1.7e9, end_time=1.7e9))
        full.append(with_whole_prompts.of_turn(turn, ours[-1]))
    return ours, full


async def through_the_hub(folder: Path, turns: list[TurnSpan]) -> dict[str, tuple[float, float]]:
    """(megabytes per game, hub CPU seconds per game) of both ways."""
    stock = await StockHub(folder).start()
    hub, client = psutil.Process(stock.process.pid), connect(stock.url)
    costs: dict[str, list[tuple[float, float]]] = {"ours": [], "full": []}
    for _ in range(GAMES):
        for way in ("ours", "full"):
            await client.enqueue_many_rollouts([EnqueueRolloutRequest(input={})])
            rollout = await client.dequeue_rollout()
            key = (rollout.rollout_id, rollout.attempt.attempt_id)
            ours, full = spans_both_ways(turns, *key)
            before = sum(hub.cpu_times()[:2])
            if way == "ours":
                size = len(gzip.compress(encode_otlp({key: ours}).SerializeToString()))
                await client.upload_spans(ours)
            else:
                size = sum(len(json.dumps(span.model_dump(mode="json"))) for span in full)
                await client.add_many_spans(full)
            costs[way].append((size / 1e6, sum(hub.cpu_times()[:2]) - before))
    await client.close()
    stock.kill()
    return {way: tuple(sum(values) / len(values) for values in zip(*rows, strict=True)) for way, rows in costs.items()}


def measure(model_folder: Path) -> Table:
    """Send a recorded game through a hub of its own, both ways."""
    _, turns = asyncio.run(record_game(PRESET, 0, model_folder))
    with tempfile.TemporaryDirectory() as folder:
        costs = asyncio.run(through_the_hub(Path(folder), turns))
    figures = zip(("MB sent", "CPU seconds of the hub"), costs["ours"], costs["full"], strict=True)
    title = f"One {PRESET} game of {len(turns)} turns through the hub"
    return table_of(title, ("what", "ours", "full id lists", "ours / other"), ratio_rows(figures))
