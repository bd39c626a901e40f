"""uvicorn's HTTP protocol with limits on headers and trailers.

uvicorn's protocol on httptools has none: an endless header fills the memory before the client is authenticated. The one
on h11 limits bytes, not seconds, and costs 0.1 ms a request.
"""

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_MOST_BYTES = 64 * 1024
_SECONDS = 30.0
_MOST_WAITING = 16
"""Requests of one connection that wait for the response to an earlier one."""


class HeaderLimitProtocol(HttpToolsProtocol):
    """A connection with limits of bytes and time for the head of the next request, and of requests that wait.

    The limit of bytes also applies to trailers, the limit of time to a body that continues after the response.
    """

    _bytes_without_body = 0
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait_for_head()

    def data_received(self, data: bytes) -> None:
        if self._bytes_without_body > _MOST_BYTES:
            self.transport.abort()
            return
        self._bytes_without_body += len(data)
        super().data_received(data)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._wait_for_head()

    def on_headers_complete(self) -> None:
        self._bytes_without_body = 0
        self._stop_waiting()
        if len(self.pipeline) >= _MOST_WAITING:  # after each response uvicorn reads on, however many wait
            self.transport.abort()
            return
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._bytes_without_body = 0
        super().on_body(body)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.cycle.more_body:
            self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait_for_head(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(_SECONDS, self.transport.abort)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
