"""uvicorn's HTTP protocol with limits on what comes before, between and after the bodies of requests.

uvicorn's protocol on httptools has none: a header without end fills the memory of a server that does not know yet
whether the sender may use it. The one on h11 limits bytes, not seconds, at 0.1 ms a request.
"""

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_MOST_BYTES = 64 * 1024
_SECONDS = 30.0


class HeaderLimitProtocol(HttpToolsProtocol):
    """A connection whose next request's head must come within a time, and within a number of bytes.

    What follows a body, such as trailing headers, has the same limit of bytes, and a body that goes on after the answer
    the same limit of time.
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
