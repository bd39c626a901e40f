"""A network that fails on purpose: an HTTP proxy before a real hub that loses and cuts answers."""

import asyncio
import random
from collections import Counter, defaultdict, deque
from collections.abc import Iterable
from enum import Enum

import aiohttp
from aiohttp import web

from algo.machine.ports import free_port

_OF_THIS_HOP = ("host", "connection", "keep-alive", "transfer-encoding", "content-length", "date", "server")


class Fault(Enum):
    """What happens to a request. In all but the first three the hub has applied it."""

    TOO_MANY_REQUESTS = "a gateway in between takes no more requests for the moment"
    BAD_GATEWAY = "a gateway in between says that it cannot reach the hub"
    NEVER_ARRIVES = "the connection breaks before the hub has the request"
    ANSWER_LOST = "the connection breaks instead of an answer"
    NO_ANSWER = "nothing more is heard, until the client gives up"
    CUT_IN_HEADERS = "the connection breaks within the headers of the answer"
    CUT_IN_BODY = "the connection breaks within the body of the answer"


def kind_of(request: web.Request) -> str:
    """What a request is about, for choosing faults."""
    path = request.path
    if path == "/v1/traces":
        return "spans"
    if path.endswith("/queues/rollouts/enqueue"):
        return "enqueue"
    if path.endswith("/queues/rollouts/dequeue"):
        return "dequeue"
    if "/attempts/" in path and request.method == "POST" and not path.endswith("/search"):
        return "update_attempt"
    return "other"


class FaultProxy:
    """Stands before the hub at ``target``. Its faults may be planned, or drawn by chance.

    url: where clients find it. hit: faults that happened, by the kind of request and the fault.
    refused: ending of a path -> status of the answer; the hub does not get these requests.
    """

    def __init__(self, target: str):
        self.hit: Counter[tuple[str, Fault]] = Counter()
        self.refused: dict[str, int] = {}
        self._target = target
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        self._planned: dict[str, deque[Fault | None]] = defaultdict(deque)
        self._chance: random.Random | None = None
        self._share = 0.0
        self._plugged = asyncio.Event()
        self._plugged.set()
        self._runner: web.AppRunner | None = None
        self._answers: set[asyncio.Task[web.StreamResponse]] = set()

    def plan(self, kind: str, faults: Iterable[Fault]) -> None:
        """Let the next request of a kind suffer the first of the faults, the second of those after it the next, …"""
        for fault in faults:
            self._planned[kind] += [fault, None]

    def by_chance(self, seed: int, share: float) -> None:
        """From now on let a share of all requests suffer, drawn from the seed; 0.0 ends it."""
        self._chance, self._share = random.Random(seed), share

    async def start(self) -> None:
        """Be there, again."""
        # Bodies pass as they are, compressed or not.
        self._session = aiohttp.ClientSession(auto_decompress=False, timeout=aiohttp.ClientTimeout(total=None))
        app = web.Application(client_max_size=2**30)
        app.router.add_route("*", "/{path:.*}", self._forward)
        self._runner = web.AppRunner(app, auto_decompress=False, shutdown_timeout=0.0, handler_cancellation=True)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port).start()

    async def stop(self) -> None:
        """Be gone: connections break, new ones are refused."""
        if self._runner is not None:
            await self._runner.cleanup()
            for answering in self._answers:
                answering.cancel()
            await asyncio.gather(*self._answers, return_exceptions=True)
            await self._session.close()
            self._runner = None

    def unplug(self) -> None:
        """Swallow requests: they neither arrive nor are refused."""
        self._plugged.clear()

    def plug_in(self) -> None:
        """Forward what was swallowed, and what comes; the clients may have given it up."""
        self._plugged.set()

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        for ending, status in self.refused.items():
            if request.path.endswith(ending):
                return web.Response(status=status)
        fault = self._fault_of(kind_of(request))
        body = await request.read()
        # What was sent arrives, even when its sender no longer waits for an answer.
        answering = asyncio.create_task(self._answer(request, body, fault))
        self._answers.add(answering)
        answering.add_done_callback(self._answers.discard)
        return await asyncio.shield(answering)

    def _fault_of(self, kind: str) -> Fault | None:
        fault = None
        if self._planned[kind]:
            fault = self._planned[kind].popleft()
        elif self._chance is not None and self._chance.random() < self._share:
            fault = self._chance.choice(list(Fault))
        if fault is not None:
            self.hit[kind, fault] += 1
        return fault

    async def _answer(self, request: web.Request, body: bytes, fault: Fault | None) -> web.StreamResponse:
        await self._plugged.wait()
        if fault is Fault.NEVER_ARRIVES:
            return self._break_off(request)
        if fault in (Fault.TOO_MANY_REQUESTS, Fault.BAD_GATEWAY):
            status = 429 if fault is Fault.TOO_MANY_REQUESTS else 502
            return web.Response(status=status, text="<h1>Try again</h1>", content_type="text/html")
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _OF_THIS_HOP}
        async with self._session.request(
            request.method, f"{self._target}{request.path_qs}", data=body or None, headers=headers
        ) as response:
            answer = await response.read()
        kept = {name: value for name, value in response.headers.items() if name.lower() not in _OF_THIS_HOP}
        match fault:
            case Fault.ANSWER_LOST:
                return self._break_off(request)
            case Fault.NO_ANSWER:
                await asyncio.Event().wait()
            case Fault.CUT_IN_HEADERS | Fault.CUT_IN_BODY:
                head = f"HTTP/1.1 {response.status} {response.reason}\r\n"
                head += "".join(f"{name}: {value}\r\n" for name, value in kept.items())
                head += f"Content-Length: {len(answer)}\r\n\r\n"
                whole = head.encode() + answer
                within = len(head) // 2 if fault is Fault.CUT_IN_HEADERS else len(head) + len(answer) // 2
                return self._break_off(request, whole[:within])
        return web.Response(status=response.status, body=answer, headers=kept)

    @staticmethod
    def _break_off(request: web.Request, said: bytes = b"") -> web.StreamResponse:
        if request.transport is not None:  # the client may have gone
            request.transport.write(said)
            request.transport.close()
        return web.Response()  # goes nowhere
