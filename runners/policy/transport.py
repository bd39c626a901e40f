"""Requests to a policy's server, asked again while it is away: cheap enough for three of them to a model's call.

An answer may take as long as it takes, as long as the server lives: a slow model is no broken one.

Asked again, as the openai package does: when a connection cannot be made or breaks, and for answers that say that it is
the server's trouble, after the time that they ask for where they do, else after pauses that double.
"""

import asyncio
import json
import math
import random
from collections.abc import Coroutine, Mapping
from typing import Any

import aiohttp

_CONNECT_TIMEOUT_SECONDS = 5.0
_SILENCE_SECONDS, _SIGN_OF_LIFE_SECONDS = 60.0, 60.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 8.0
_LONGEST_WISH = 60.0
_JITTER = 0.25
_AGAIN = (408, 409, 429)
# vLLM closes a connection that has been idle for 5 s; one that is used at that moment breaks.
_KEEP_ALIVE_SECONDS = 3.0


_Answer = tuple[int, bytes, Mapping[str, str]]


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

    patience_seconds: how long about a server is asked again, pauses alone counted.
    silence_seconds: after which a server that owes an answer is asked whether it lives.
    """

    def __init__(self, patience_seconds: float, silence_seconds: float = _SILENCE_SECONDS):
        self.retries = _retries_within(patience_seconds)
        self._silence = silence_seconds
        self._session: aiohttp.ClientSession | None = None

    async def send(self, method: str, url: str, body: Mapping[str, Any] | None = None) -> tuple[Any, Mapping[str, str]]:
        """(decoded JSON, headers) of the answer. Raises NoAnswer, Refused, and ValueError for what is not JSON."""
        session = self._opened()
        data = None if body is None else json.dumps(body).encode()
        pause = _FIRST_PAUSE
        for attempt in range(self.retries + 1):
            wish = None
            try:
                status, text, headers = await self._while_it_lives(session, url, _ask(session, method, url, data))
                if status < 400:
                    return json.loads(text), headers
                trouble: Exception = Refused(status, _said(text))
                if status not in _AGAIN and status < 500:
                    raise trouble
                wish = _wished_pause(headers)
            except (aiohttp.ClientError, TimeoutError) as error:
                trouble = error
            if attempt < self.retries:
                await asyncio.sleep(pause * (1 - _JITTER * random.random()) if wish is None else wish)
                pause = min(2 * pause, _LONGEST_PAUSE)
        if isinstance(trouble, Refused) and trouble.status < 500:
            raise trouble
        raise NoAnswer(str(trouble) or type(trouble).__name__) from trouble

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()

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
                async with session.get(sign_of_life, timeout=limit, raise_for_status=True):
                    pass
            return answering.result()
        finally:
            answering.cancel()

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                trust_env=False,  # a proxy from the environment must not come between a runner and its own cluster
                headers={"Content-Type": "application/json"},
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_ALIVE_SECONDS),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_TIMEOUT_SECONDS),
            )
        return self._session


async def _ask(session: aiohttp.ClientSession, method: str, url: str, data: bytes | None) -> _Answer:
    async with session.request(method, url, data=data) as answer:
        return answer.status, await answer.read(), answer.headers


def _said(text: bytes) -> str:
    """What an error's answer says is wrong, in the form of vLLM, or as text."""
    try:
        return str(json.loads(text)["error"]["message"])
    except (ValueError, LookupError, TypeError):
        return text[:300].decode(errors="replace")


def _wished_pause(headers: Mapping[str, str]) -> float | None:
    """Seconds after which a server wants to be asked again; None where it does not say, or too long."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name, "")) * unit
        except ValueError:
            continue
        if math.isfinite(seconds) and 0 < seconds <= _LONGEST_WISH:
            return seconds
    return None


def _retries_within(seconds: float) -> int:
    retries, pause, paused = 0, _FIRST_PAUSE, 0.0
    while paused + pause <= seconds:
        retries, paused = retries + 1, paused + pause
        pause = min(2 * pause, _LONGEST_PAUSE)
    return retries
