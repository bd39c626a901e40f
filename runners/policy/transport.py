"""Requests to a policy's server, asked again while it is away: cheap enough for three of them to a model's call.

Asked again, as the openai package does: when a connection cannot be made or breaks, and for answers that say that it is
the server's trouble, after the time that they ask for where they do, else after pauses that double.
"""

import asyncio
import json
import math
import random
from collections.abc import Mapping
from typing import Any

import aiohttp

_REQUEST_TIMEOUT_SECONDS, _CONNECT_TIMEOUT_SECONDS = 300.0, 5.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 8.0
_LONGEST_WISH = 60.0
_JITTER = 0.25
_AGAIN = (408, 409, 429)
# vLLM closes a connection that has been idle for 5 s; one that is used at that moment breaks.
_KEEP_ALIVE_SECONDS = 3.0


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
    """

    def __init__(self, patience_seconds: float):
        self.retries = _retries_within(patience_seconds)
        self._session: aiohttp.ClientSession | None = None

    async def send(self, method: str, url: str, body: Mapping[str, Any] | None = None) -> tuple[Any, Mapping[str, str]]:
        """(decoded JSON, headers) of the answer. Raises NoAnswer, Refused, and ValueError for what is not JSON."""
        session = self._opened()
        data = None if body is None else json.dumps(body).encode()
        pause = _FIRST_PAUSE
        for attempt in range(self.retries + 1):
            wish = None
            try:
                async with session.request(method, url, data=data) as answer:
                    text = await answer.read()
                    if answer.status < 400:
                        return json.loads(text), answer.headers
                    trouble: Exception = Refused(answer.status, _said(text))
                    if answer.status not in _AGAIN and answer.status < 500:
                        raise trouble
                    wish = _wished_pause(answer.headers)
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

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                trust_env=False,  # a proxy from the environment must not come between a runner and its own cluster
                headers={"Content-Type": "application/json"},
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_ALIVE_SECONDS),
                timeout=aiohttp.ClientTimeout(total=_REQUEST_TIMEOUT_SECONDS, sock_connect=_CONNECT_TIMEOUT_SECONDS),
            )
        return self._session


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
