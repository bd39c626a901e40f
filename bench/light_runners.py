"""Very many runners in one process, which replay the same game: what is measured is the hub and not the play."""

import asyncio
import json
import random
from collections import Counter
from dataclasses import dataclass, field

import aiohttp
from agentlightning import Span

from store.client import encode_otlp

PROTOBUF = {"Content-Type": "application/x-protobuf"}
TEXT = "他发言时一直在躲闪，我更相信对面那位预言家的验人。" * 6
_PASSING = (aiohttp.ClientError, asyncio.TimeoutError, ConnectionError)


@dataclass
class Played:
    """What the hub has acknowledged: rollout id -> attempt id of each game ended, spans of each attempt."""

    ended: dict[str, str] = field(default_factory=dict)
    spans: Counter = field(default_factory=Counter)
    doubled: list[str] = field(default_factory=list)


class LightRunners:
    """``runners`` at once, each with a connection of its own; they take games until ``stop``.

    turns: the most turns of a game, three spans each, as agentlightning's own benchmark has them.
    """

    def __init__(self, url: str, runners: int, turns: int, seed: int = 1):
        self._url = f"{url}/v1/agl"
        self._traces = f"{url}/v1/traces"
        self._runners = runners
        self._turns = turns
        self._chance = random.Random(seed)
        self._stopping = False
        self.played = Played()

    def stop(self) -> None:
        """Have no more games taken."""
        self._stopping = True

    async def run(self) -> None:
        """Play until ``stop``."""
        connector = aiohttp.TCPConnector(limit=0)
        timeout = aiohttp.ClientTimeout(total=60)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session, asyncio.TaskGroup() as group:
            for number in range(self._runners):
                group.create_task(self._run_one(session, f"runner-{number}"))

    async def _run_one(self, session: aiohttp.ClientSession, worker: str) -> None:
        while not self._stopping:
            try:
                request = {"limit": 1, "worker_id": worker}
                async with session.post(f"{self._url}/queues/rollouts/dequeue", json=request) as answer:
                    answer.raise_for_status()
                    taken = json.loads(await answer.read())
            except _PASSING:
                taken = []
            if taken:
                await self._play(session, taken[0]["rollout_id"], taken[0]["attempt"]["attempt_id"])
            else:
                await asyncio.sleep(0.5 + self._chance.random())

    async def _play(self, session: aiohttp.ClientSession, rollout_id: str, attempt_id: str) -> None:
        key, number = (rollout_id, attempt_id), 0
        for _ in range(self._chance.randint(1, self._turns)):
            spans = [_span(key, number + n) for n in range(3)]
            number += 3
            body = encode_otlp({key: spans}).SerializeToString()
            if await self._insist(session, self._traces, data=body, headers=PROTOBUF) is None:
                return
            self.played.spans[key] += 3
        path = f"{self._url}/rollouts/{rollout_id}/attempts/{attempt_id}"
        if await self._insist(session, path, json={"status": "succeeded"}) is None:
            return
        if rollout_id in self.played.ended:
            self.played.doubled.append(rollout_id)
        self.played.ended[rollout_id] = attempt_id

    async def _insist(self, session: aiohttp.ClientSession, url: str, **request) -> int | None:
        """Send until it is acknowledged; None if the game is another runner's by now."""
        while True:
            try:
                async with session.post(url, **request) as answer:
                    await answer.read()
                    if answer.status in (404, 409):
                        return None
                    answer.raise_for_status()
                    return answer.status
            except _PASSING:
                await asyncio.sleep(0.5 + self._chance.random())


def _span(key: tuple[str, str], number: int) -> Span:
    return Span.from_attributes(
        attributes={"text": TEXT, "turn": number // 3, "score": 0.5},
        rollout_id=key[0],
        attempt_id=key[1],
        sequence_id=number + 1,
        span_id=f"{number + 1:016x}",
        trace_id="0" * 31 + "1",
        name="turn",
        start_time=1.7e9,
        end_time=1.7e9 + 1,
    )
