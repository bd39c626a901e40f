"""uvicorn's HTTP protocol with a limit on what comes before, between and after the bodies of requests.

uvicorn limits neither bytes nor seconds of it: a header without end fills the memory of a server that has not even seen
whether the sender may use it.
"""

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_MOST_BYTES = 64 * 1024
_SECONDS = 30.0


class BoundedHeadProtocol(HttpToolsProtocol):
    """A connection whose next request's head must come within a time, and within a number of bytes.

    What follows a body, such as trailing headers, has the same limit of bytes, and a body that goes on after the answer
    the same limit of time.
    """

    _bytes_without_body = 0
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._wait_for_head()

    def data_received(self, data: bytes) -> None:
        """Take what came, unless too much came before it that was no body."""
        if self._bytes_without_body > _MOST_BYTES:
            self.transport.abort()
            return
        self._bytes_without_body += len(data)
        super().data_received(data)

    def on_message_begin(self) -> None:
        """The first line of a request begins."""
        super().on_message_begin()
        if self._deadline is None:
            self._wait_for_head()

    def on_headers_complete(self) -> None:
        """The head is whole: from here on the body's limits hold."""
        self._bytes_without_body = 0
        self._stop_waiting()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A piece of the body has come."""
        self._bytes_without_body = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is whole."""
        self._bytes_without_body = 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """The request is answered, perhaps before it was whole."""
        super().on_response_complete()
        if self.cycle.more_body and self._deadline is None:
            self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing more is waited for."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait_for_head(self) -> None:
        self._deadline = self.loop.call_later(_SECONDS, self.transport.abort)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
