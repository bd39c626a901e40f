"""Uploads the spans of all rollouts of a process, in batches."""

import asyncio
import logging
from collections import defaultdict

import aiohttp

from store.client import AttemptKey, StoreClient, describe_error
from store.protocol import Span

logger = logging.getLogger(__name__)
_INTERVAL_SECONDS = 1.0


class SpansRejected(LookupError):
    """The hub rejects the attempt's spans, e.g. after a restart with an empty memory; the attempt is useless."""


class SpanUploader:
    """Buffers spans and sends them every second; ``finish`` waits until those of an attempt are
    stored."""

    def __init__(self, client: StoreClient):
        self._client = client
        self._buffer: dict[AttemptKey, list[Span]] = defaultdict(list)
        self._rejected: dict[AttemptKey, str] = {}
        self._upload_lock = asyncio.Lock()

    def add(self, span: Span) -> None:
        """Add a span to the next batch. Raises SpansRejected if the hub has rejected spans of the attempt."""
        key = (span.rollout_id, span.attempt_id)
        if key in self._rejected:
            raise _rejection(key, self._rejected[key])
        self._buffer[key].append(span)

    async def run(self) -> None:
        """Send batches until cancelled. Raises StoreUnreachable if the hub stays unreachable."""
        while True:
            await asyncio.sleep(_INTERVAL_SECONDS)
            try:
                await self._flush()
            except (aiohttp.ClientError, TimeoutError) as error:  # the spans are in the buffer again
                logger.warning("spans could not be sent (%s); retrying", describe_error(error))

    async def finish(self, key: AttemptKey) -> None:
        """Wait until every span of the attempt is stored. Raises SpansRejected or StoreUnreachable."""
        # Waits for a running upload, too. Shielded: cancelling one rollout must not abort the upload of others.
        await asyncio.shield(asyncio.create_task(self._flush()))
        if key in self._rejected:
            raise _rejection(key, self._rejected.pop(key))

    async def discard(self, key: AttemptKey) -> None:
        """Drop the buffered spans of an attempt; afterwards none of them can reach the hub."""
        async with self._upload_lock:  # a running upload may put spans back that it could not send
            self._buffer.pop(key, None)
            self._rejected.pop(key, None)

    async def _flush(self) -> None:
        async with self._upload_lock:
            batch, self._buffer = self._buffer, defaultdict(list)
            try:
                refused = await self._client.upload_spans([span for spans in batch.values() for span in spans])
            except BaseException:
                # Sent again with the next batch; duplicates are harmless.
                for key, spans in batch.items():
                    self._buffer[key][:0] = spans
                raise
            self._rejected |= refused


def _rejection(key: AttemptKey, reason: str) -> SpansRejected:
    return SpansRejected(f"the hub rejects the spans of rollout {key[0]}: {reason}")
