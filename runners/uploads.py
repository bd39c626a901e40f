"""Spans on their way to the hub: gathered from all games of a process, sent in bulk as the games go."""

import asyncio
import logging
from collections import defaultdict

import aiohttp

from store.client import AttemptKey, StoreClient, describe_error
from store.protocol import Span

logger = logging.getLogger(__name__)


class GameForgotten(LookupError):
    """The hub does not take the game's spans, as after a restart with an empty memory; playing on is useless."""


class SpanUploader:
    """Buffers spans and sends them every ``interval_seconds``; ``finish`` waits until a game's are stored."""

    def __init__(self, client: StoreClient, interval_seconds: float = 1.0):
        self._client = client
        self._interval = interval_seconds
        self._buffer: dict[AttemptKey, list[Span]] = defaultdict(list)
        self._forgotten: set[AttemptKey] = set()
        self._one_at_a_time = asyncio.Lock()

    def add(self, span: Span) -> None:
        """Take a span; it is sent with the next batch. Raises GameForgotten when the hub refused the game's spans."""
        key = (span.rollout_id, span.attempt_id)
        if key in self._forgotten:
            raise GameForgotten(f"the hub does not take the spans of rollout {key[0]}; it may have restarted")
        self._buffer[key].append(span)

    async def run(self) -> None:
        """Send what has gathered, again and again, until cancelled. Raises StoreUnreachable when the hub stays away."""
        while True:
            await asyncio.sleep(self._interval)
            try:
                await self._flush()
            except (aiohttp.ClientError, TimeoutError) as error:  # the spans were put back
                logger.warning("spans could not be sent (%s); trying again", describe_error(error))

    async def finish(self, key: AttemptKey) -> None:
        """Return once every span of the game is stored. Raises GameForgotten or StoreUnreachable."""
        # Waits for an upload under way, too. Shielded: a game cancelled here must not abort the others' upload.
        await asyncio.shield(asyncio.create_task(self._flush()))
        if key in self._forgotten:
            self._forgotten.discard(key)
            raise GameForgotten(f"the hub does not take the spans of rollout {key[0]}; it may have restarted")

    async def discard(self, key: AttemptKey) -> None:
        """Drop what is left of an abandoned game; returns when none of its spans can reach the hub any more."""
        async with self._one_at_a_time:  # an upload under way may still put spans back that it could not send
            self._buffer.pop(key, None)
            self._forgotten.discard(key)

    async def _flush(self) -> None:
        async with self._one_at_a_time:
            batch, self._buffer = self._buffer, defaultdict(list)
            try:
                refused = await self._client.upload_spans([span for spans in batch.values() for span in spans])
            except BaseException:
                # What was not sent goes out next time; sending it twice is harmless.
                for key, spans in batch.items():
                    self._buffer[key][:0] = spans
                raise
            self._forgotten |= refused
