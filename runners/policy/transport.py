"""Requests to a policy's server, retried while it is away: cheap enough for three of them to a model's call.

An answer may take as long as it takes, as long as the server lives: a slow model is no broken one.

The address comes from a hub, so the server is no friend: its redirects are refused, and of its answer no more is read
than one can need. Compression is not asked for and not undone, so that nothing small becomes large.
"""

import asyncio
import json
from collections.abc import Coroutine, Mapping
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, wait_exponential_jitter

MOST_BYTES = 32 * 2**20
"""Of one answer: a million token ids with their log-probs are less."""

_CONNECT_TIMEOUT_SECONDS = 5.0
_SILENCE_SECONDS, _SIGN_OF_LIFE_SECONDS = 60.0, 60.0
_PAUSES = wait_exponential_jitter(multiplier=0.5, max=8.0, jitter=0.5)
_AGAIN = (408, 409, 429)
# vLLM closes a connection that has been idle for 5 s; one that is used at that moment breaks.
_KEEP_ALIVE_SECONDS = 3.0

_Answer = tuple[bytes, Mapping[str, str]]


class NoAnswer(Exception):
    """The server stayed away, or kept answering with an error of its own."""


class Refused(Exception):
    """The server answers that the request is wrong. status: of the answer; detail: what it says."""

    def __init__(self, status: int, detail: str):
        super().__init__(f"{status}: {detail}" if detail else str(status))
        self.status = status
        self.detail = detail


class Transport:
    """Connections to one server, opened as they are needed, in the event loop that first uses them.

    patience_seconds: how long a request is retried that finds no server, or one with an error of its own; only the
        pauses between the tries count.
    resolver: finds the addresses to connect to; None: the system's.
    silence_seconds: after which a server that owes an answer is asked whether it lives.
    """

    def __init__(
        self,
        patience_seconds: float,
        resolver: AbstractResolver | None = None,
        silence_seconds: float = _SILENCE_SECONDS,
    ):
        self.patience_seconds = patience_seconds
        self._resolver = resolver
        self._silence = silence_seconds
        self._session: aiohttp.ClientSession | None = None

    async def send(self, method: str, url: str, body: Mapping[str, Any] | None = None) -> tuple[Any, Mapping[str, str]]:
        """(decoded JSON, headers) of the answer. Raises NoAnswer, Refused, and ValueError for what is not JSON."""
        session = self._opened()
        data = None if body is None else json.dumps(body).encode()
        retrying = AsyncRetrying(
            retry=retry_if_exception(_may_pass), wait=_PAUSES, stop=self._patience_is_spent, reraise=True
        )

        async def once() -> _Answer:
            return await self._while_it_lives(session, url, _ask(session, method, url, data))

        try:
            text, headers = await retrying(once)
        except Refused as error:
            if error.status < 500:
                raise
            raise NoAnswer(str(error)) from error
        except (aiohttp.ClientError, TimeoutError) as error:
            raise NoAnswer(str(error) or type(error).__name__) from error
        return json.loads(text), headers

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    def _patience_is_spent(self, state: RetryCallState) -> bool:
        return state.idle_for + state.upcoming_sleep > self.patience_seconds

    async def _while_it_lives(
        self, session: aiohttp.ClientSession, url: str, asked: Coroutine[Any, Any, _Answer]
    ) -> _Answer:
        """The answer, waited for as long as the server answers other questions; raises what asking those raises."""
        answering = asyncio.create_task(asked)
        try:
            while not (await asyncio.wait({answering}, timeout=self._silence))[0]:
                # One of the few routes that a proxy before a server forwards (``serving.public_urls``).
                base, below_v1, _ = url.partition("/v1/")
                sign_of_life = f"{base if below_v1 else url.rpartition('/')[0]}/v1/models"
                limit = aiohttp.ClientTimeout(total=_SIGN_OF_LIFE_SECONDS)
                async with session.get(sign_of_life, timeout=limit, raise_for_status=True, allow_redirects=False):
                    pass
            return answering.result()
        finally:
            answering.cancel()

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                trust_env=False,  # a proxy from the environment must not come between a runner and its own cluster
                headers={"Content-Type": "application/json", "Accept-Encoding": "identity"},
                auto_decompress=False,
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_ALIVE_SECONDS, resolver=self._resolver),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_TIMEOUT_SECONDS),
            )
        return self._session


async def _ask(session: aiohttp.ClientSession, method: str, url: str, data: bytes | None) -> _Answer:
    async with session.request(method, url, data=data, allow_redirects=False) as answer:
        text = bytearray()
        async for part in answer.content.iter_any():
            text += part
            if len(text) > MOST_BYTES:
                answer.close()
                raise Refused(answer.status, f"its answer is longer than {MOST_BYTES // 2**20} MiB")
        if 300 <= answer.status < 400:
            raise Refused(answer.status, "it redirects to another address, which no policy's server may do")
        if answer.status >= 400:
            raise Refused(answer.status, _said(bytes(text)))
        return bytes(text), answer.headers


def _may_pass(error: BaseException) -> bool:
    """Whether the request may succeed when it is made again."""
    if isinstance(error, Refused):
        return error.status in _AGAIN or error.status >= 500
    return isinstance(error, (aiohttp.ClientError, TimeoutError))


def _said(text: bytes) -> str:
    """What an error's answer says is wrong, in the form of vLLM, or as text."""
    try:
        return str(json.loads(text)["error"]["message"])
    except (ValueError, LookupError, TypeError):
        return text[:300].decode(errors="replace")
