"""Very many runners in one process that replay one game, so that only the hub is measured."""

import asyncio
import json
import random
from collections import Counter

import aiohttp

from store.otlp import encode_otlp
from store.protocol import Span

PROTOBUF = {"Content-Type": "application/x-protobuf"}
TEXT = "他发言时一直在躲闪，我更相信对面那位预言家的验人。" * 6
_PASSING = (aiohttp.ClientError, asyncio.TimeoutError, ConnectionError)
_NOT_OURS_ANY_MORE = (404, 409)


def turn_span(key: tuple[str, str], number: int) -> Span:
    """key: (rollout id, attempt id). number: in its attempt, from 1."""
    return Span(
        attributes={"text": TEXT, "turn": number, "score": 0.5},
        rollout_id=key[0],
        attempt_id=key[1],
        sequence_id=number,
        span_id=f"{number:016x}",
        trace_id=f"{1:032x}",
        name="turn",
        start_time=1.7e9,
        end_time=1.7e9 + 1,
    )


class LightRunners:
    """``runners`` at once, each with its own connection; they dequeue games until ``stop`` is set.

    turns: most turns of a game, three spans each, as in agentlightning's benchmark.
    ended, spans: acknowledged by the hub: number of ends of each game, and spans by (rollout id, attempt id).
    """

    def __init__(self, url: str, runners: int, turns: int):
        self._url = f"{url}/v1"
        self._runners, self._turns = runners, turns
        self._chance = random.Random(1)
        self.stop = asyncio.Event()
        self.ended: Counter[str] = Counter()
        self.spans: Counter[tuple[str, str]] = Counter()

    async def run(self) -> None:
        connector, timeout = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(total=60)
        async with (
            aiohttp.ClientSession(connector=connector, timeout=timeout) as self._session,
            asyncio.TaskGroup() as group,
        ):
            for number in range(self._runners):
                group.create_task(self._run_one(f"runner-{number}"))

    async def _run_one(self, worker: str) -> None:
        while not self.stop.is_set():
            request = {"limit": 1, "worker_id": worker}
            body = await self._post("agl/queues/rollouts/dequeue", json=request)
            if body and (taken := json.loads(body)):
                await self._play(taken[0]["rollout_id"], taken[0]["attempt"]["attempt_id"])
            else:
                await self._pause()

    async def _play(self, *key: str) -> None:
        for turn in range(self._chance.randint(1, self._turns)):
            spans = [turn_span(key, 3 * turn + n) for n in (1, 2, 3)]
            body = encode_otlp({key: spans}).SerializeToString()
            if not await self._insist("traces", data=body, headers=PROTOBUF):
                return
            self.spans[key] += 3
        if await self._insist(f"agl/rollouts/{key[0]}/attempts/{key[1]}", json={"status": "succeeded"}):
            self.ended[key[0]] += 1

    async def _insist(self, path: str, **request) -> bool:
        """Send until acknowledged; False if the game belongs to another runner."""
        while (answer := await self._post(path, **request)) is None:
            await self._pause()
        return answer is not False

    async def _post(self, path: str, **request) -> bytes | bool | None:
        """The answer; False if the game belongs to another runner, None if the hub is unreachable."""
        try:
            async with self._session.post(f"{self._url}/{path}", **request) as answer:
                if answer.status in _NOT_OURS_ANY_MORE:
                    return False
                answer.raise_for_status()
                return await answer.read()
        except _PASSING:
            return None

    async def _pause(self) -> None:
        await asyncio.sleep(0.5 + self._chance.random())
