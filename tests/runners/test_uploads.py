"""Spans on their way to the hub survive answers that are errors."""

import asyncio

import aiohttp

from runners.uploads import SpanUploader
from store.token_spans import to_span
from tests.support.fakes import make_turn


class FakeClient:
    """Fails the first uploads with what a hub's 500 becomes, then takes everything."""

    def __init__(self, failures):
        self._failures = failures
        self.taken = []
        self.took = asyncio.Event()

    async def upload_spans(self, spans):
        if self._failures:
            self._failures -= 1
            raise aiohttp.ClientPayloadError("the hub answered 500")
        self.taken += spans
        if spans:
            self.took.set()
        return set()


async def test_an_error_of_the_hub_neither_ends_the_uploads_nor_loses_a_span():
    client = FakeClient(failures=2)
    uploader = SpanUploader(client, interval_seconds=0.001)
    sending = asyncio.create_task(uploader.run())
    span = to_span(make_turn(), rollout_id="r", attempt_id="a", sequence_id=1, start_time=1.7e9, end_time=1.7e9)
    uploader.add(span)
    async with asyncio.timeout(10):
        await client.took.wait()
    assert client.taken == [span] and not sending.done()
    sending.cancel()
