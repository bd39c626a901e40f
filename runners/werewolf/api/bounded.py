"""Size limits of answers for the HTTP client below AgentScope's models.

A hub may choose the endpoint, so compression is off, against decompression bombs.
"""

import importlib
from collections.abc import AsyncIterator
from typing import Any

from openai import DefaultAsyncHttpxClient

from runners.addresses import Addresses
from runners.policy.client import MAX_ANSWER_BYTES
from store.printable import printable

_httpx: Any = importlib.import_module(DefaultAsyncHttpxClient.__base__.__module__.partition(".")[0])
"""openai's HTTP package: httpx, or httpx2 in later versions, with other classes."""

PLAIN = {"Accept-Encoding": "identity"}
"""Headers of a request for an answer that is not compressed."""


class UnreadableAnswer(ValueError):
    """An answer is too long, or compressed."""


async def bound(response: Any) -> None:
    """httpx's event hook ``response``. Reading the answer raises UnreadableAnswer where it is too long."""
    if response.headers.get("Content-Encoding", "identity") != "identity":
        raise UnreadableAnswer("it is compressed, although the request disallows that")
    response.stream = _BoundedStream(response.stream)


class CheckedTransport(_httpx.AsyncHTTPTransport):
    """httpx's transport that connects to the checked address."""

    def __init__(self, addresses: Addresses):
        super().__init__()
        self._addresses = addresses

    async def handle_async_request(self, request: Any) -> Any:
        """Raises AddressRefused; ConnectError for a name that is not known."""
        host = request.url.host
        failed = _httpx.ConnectError(f"cannot resolve the name {printable(host)}", request=request)
        # The request keeps its header Host, and a certificate is that of the name.
        request.extensions = {**request.extensions, "sni_hostname": host}
        for address in await self._addresses.resolve(str(request.url)):
            request.url = request.url.copy_with(host=address)
            try:
                return await super().handle_async_request(request)
            except _httpx.ConnectError as error:
                failed = error
        raise failed


class _BoundedStream(_httpx.AsyncByteStream):
    def __init__(self, stream: Any):
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        read = 0
        async for part in self._stream:
            read += len(part)
            if read > MAX_ANSWER_BYTES:
                raise UnreadableAnswer(f"it is longer than {MAX_ANSWER_BYTES // 2**20} MiB")
            yield part

    async def aclose(self) -> None:
        await self._stream.aclose()
