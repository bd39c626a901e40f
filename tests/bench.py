"""``make bench``: speeds as ratios, both sides measured in one run on one machine.

1. A game's turns through the hub: our bulk upload of what is new, against full id lists through the
   stock client's ``add_many_spans``. Bytes of the request bodies, and CPU seconds of the hub's process.
2. Training tokens of a game: one sequence per seat, against one per turn.
3. Whole games without models, per preset, random and scripted players at the rules alone: games per second,
   decisions and rounds per game (rounds are what latency pays, decisions what throughput pays), and the share
   of model calls that is left since offers to explode or withdraw ride along with decisions made anyway.

Absolute numbers depend on the machine; the ratios are what to look at.
"""

import asyncio
import gzip
import json
import random
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table

from store.client import connect, encode_otlp
from store.spans import TurnSpan, context_digest, to_span

# isort: split
from agentlightning import EnqueueRolloutRequest, Span
from conftest import free_port
from fakes import make_turn

from runners.werewolf.brains import Brain
from runners.werewolf.game import PRESETS, Action, Observation, Option, Preset, Side
from runners.werewolf.local import play_locally, seeded_brains

SEATS, TURNS_PER_SEAT, NEW_TOKENS, SAMPLED_TOKENS = 12, 8, 350, 150
GAMES_THROUGH_HUB = 5
SECONDS_OF_PLAY = 3.0


def a_long_game(rollout_id: str, attempt_id: str) -> tuple[list[Span], list[Span], list[TurnSpan]]:
    """A 12-player game's turns of made-up tokens: (our spans, spans with full id lists, the turns)."""
    chance = random.Random(7)
    ours, full, turns = [], [], []
    for seat in range(1, SEATS + 1):
        context: list[int] = []
        for number in range(TURNS_PER_SEAT):
            prompt = [chance.randrange(150_000) for _ in range(NEW_TOKENS)]
            sampled = [chance.randrange(150_000) for _ in range(SAMPLED_TOKENS)]
            logprobs = [-chance.random() for _ in sampled]
            turn = make_turn(
                seat=seat,
                turn=number,
                context_tokens=len(context),
                context_digest=context_digest(context),
                prompt_ids=tuple(prompt),
                response_ids=tuple(sampled),
                logprobs=tuple(logprobs),
            )
            turns.append(turn)
            ids = dict(rollout_id=rollout_id, attempt_id=attempt_id, sequence_id=len(turns))
            ours.append(to_span(turn, **ids, start_time=1.7e9, end_time=1.7e9))
            attributes = {
                "prompt_token_ids": [*context, *prompt],
                "response_token_ids": sampled,
                "logprobs.content": json.dumps([{"logprob": value} for value in logprobs]),
            }
            full.append(Span.from_attributes(attributes=attributes, name="openai.chat.completion", **ids))
            context += prompt + sampled
    return ours, full, turns


async def through_the_hub(url: str, hub: psutil.Process) -> dict[str, tuple[float, float]]:
    """(megabytes per game, hub CPU seconds per game) of both ways."""
    client = connect(url)
    await client.wait_until_reachable()
    costs: dict[str, list[tuple[float, float]]] = {"ours": [], "full": []}
    for _ in range(GAMES_THROUGH_HUB):
        for way in ("ours", "full"):
            await client.enqueue_many_rollouts([EnqueueRolloutRequest(input={})])
            rollout = await client.dequeue_rollout()
            key = (rollout.rollout_id, rollout.attempt.attempt_id)
            ours, full, _ = a_long_game(*key)
            before = sum(hub.cpu_times()[:2])
            if way == "ours":
                size = len(gzip.compress(encode_otlp({key: ours}).SerializeToString()))
                await client.upload_spans(ours)
            else:
                size = sum(len(json.dumps(span.model_dump(mode="json"))) for span in full)
                await client.add_many_spans(full)
            costs[way].append((size / 1e6, sum(hub.cpu_times()[:2]) - before))
    await client.close()
    return {way: tuple(sum(values) / len(values) for values in zip(*rows, strict=True)) for way, rows in costs.items()}


def training_tokens() -> tuple[int, int]:
    """Tokens through the update for one game: (one sequence per seat, one per turn)."""
    _, _, turns = a_long_game("r", "a")
    per_seat = sum(len(turn.prompt_ids) + len(turn.response_ids) for turn in turns)
    per_turn = sum(turn.context_tokens + len(turn.prompt_ids) + len(turn.response_ids) for turn in turns)
    return per_seat, per_turn


@dataclass(frozen=True)
class Play:
    """How games of one preset went. Per game: decisions (a model needs a call for each), rounds of questions put
    at once, and offers that rode along with a decision instead of taking a call of their own."""

    games_per_second: float
    decisions: float
    rounds: float
    offers: float


def play_for_a_while(preset: Preset, players: str) -> Play:
    """Games to their end, one after another, on one core."""
    offers = 0

    class Counting:
        def __init__(self, brain: Brain):
            self._brain = brain

        def act(self, observation: Observation) -> Action:
            nonlocal offers
            offers += len({Option.EXPLODE, Option.WITHDRAW} & set(observation.request.options))
            return self._brain.act(observation)

    games, started = [], time.perf_counter()
    while time.perf_counter() - started < SECONDS_OF_PLAY:
        brains = seeded_brains(preset, len(games), dict.fromkeys(Side, players))
        game = play_locally(preset, len(games), {seat: Counting(brain) for seat, brain in brains.items()})
        games.append((game.decisions, game.rounds))
    played = len(games)
    decisions, rounds = (sum(column) / played for column in zip(*games, strict=True))
    return Play(played / (time.perf_counter() - started), decisions, rounds, offers / played)


def main() -> None:
    """Measure and print."""
    console = Console()
    port = free_port()
    command = [str(Path(sys.executable).with_name("agl")), "store", "--host", "127.0.0.1", "--port", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        costs = asyncio.run(through_the_hub(f"http://127.0.0.1:{port}", psutil.Process(process.pid)))
    finally:
        process.terminate()
        process.wait()
    per_seat, per_turn = training_tokens()
    table = Table(title=f"One game of {SEATS} seats, {TURNS_PER_SEAT} turns each", title_justify="left")
    for column in ("what", "ours", "the other way", "ours / other"):
        table.add_column(column, justify="left" if column == "what" else "right")
    (megabytes, seconds), (full_megabytes, full_seconds) = costs["ours"], costs["full"]
    rows = [
        ("MB through the hub, against full id lists", megabytes, full_megabytes, ".2f"),
        ("hub CPU seconds, against add_many_spans", seconds, full_seconds, ".3f"),
        ("training tokens, against one sequence per turn", per_seat, per_turn, ","),
    ]
    for name, ours, other, form in rows:
        table.add_row(name, f"{ours:{form}}", f"{other:{form}}", f"{ours / other:.3f}")
    console.print(table)
    games = Table(title="Whole games, rules and players alone", title_justify="left")
    columns = ("preset", "players", "games/s", "decisions", "rounds", "per round", "calls / with offers asked apart")
    for column in columns:
        games.add_column(column, justify="left" if column in ("preset", "players") else "right")
    for name, preset in PRESETS.items():
        for players in ("random", "scripted"):
            play = play_for_a_while(preset, players)
            games.add_row(
                name,
                players,
                f"{play.games_per_second:.0f}",
                f"{play.decisions:.1f}",
                f"{play.rounds:.1f}",
                f"{play.decisions / play.rounds:.2f}",
                f"{play.decisions / (play.decisions + play.offers):.3f}",
            )
    console.print(games)


if __name__ == "__main__":
    main()
