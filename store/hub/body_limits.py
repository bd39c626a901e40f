"""Limits of request bodies: bytes, decompressed bytes, JSON values, seconds, and the memory of all requests."""

import asyncio
import gzip
import io
import logging
import zlib

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from store.hub.otlp_size import check_otlp_size
from store.printable import printable

logger = logging.getLogger(__name__)

_JSON_SHARE = 4
"""Divisor of the limit for JSON, which takes many times its size as objects."""

_MOST_JSON_VALUES = 50_000
_MOST_JSON_VALUES_OF = {"/v1/agl/spans": 500_000, "/v1/agl/queues/rollouts/enqueue": 500_000}
"""Larger where validation stops at the first bad value (``store.hub.routes``); elsewhere it reports all of them."""

_HELD_REQUESTS = 4
"""Memory limit of the bodies of all requests in progress, in multiples of the largest request."""

_SMALL_BYTES = 64 * 1024
_SECONDS = 60.0


class BodyLimitMiddleware:
    """ASGI middleware: passes a request on with its whole body, decompressed, or rejects it.

    413: more than ``largest_bytes``, or too many JSON values. 408: incomplete after a minute. 503: too much in the
    bodies of requests in progress. 400: invalid gzip.
    """

    def __init__(self, app: ASGIApp, largest_bytes: int):
        self._app = app
        self._largest = largest_bytes
        self._held = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        if not ("content-length" in headers or "transfer-encoding" in headers):
            await self._app(scope, receive, send)
            return
        try:
            scope, body = await self._whole(scope, headers, receive)
        except HTTPException as error:
            # No other variable may refer to the error: its traceback would keep the body in memory.
            status, detail = error.status_code, error.detail
            logger.warning("%s %s answered %d: %s", scope["method"], printable(scope["path"]), status, detail)
            await JSONResponse({"detail": detail}, status, error.headers)(scope, receive, send)
            return
        whole: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def replay() -> Message:
            return whole.pop() if whole else await receive()

        try:
            await self._app(scope, replay, send)
        finally:  # it may wait for the database
            self._held -= len(body)

    async def _whole(self, scope: Scope, headers: Headers, receive: Receive) -> tuple[Scope, bytes]:
        """The request without its gzip, and its body, which counts as held. Raises HTTPException."""
        is_protobuf = headers.get("content-type", "").partition(";")[0].strip().lower() == "application/x-protobuf"
        largest = self._largest if is_protobuf else self._largest // _JSON_SHARE
        announced = headers.get("content-length", "0")
        if announced.isdecimal() and int(announced) > largest:
            raise _too_large(largest)
        try:
            async with asyncio.timeout(_SECONDS):
                body = await self._read(Request(scope, receive), largest)
        except TimeoutError:
            raise HTTPException(408, f"request body incomplete after {_SECONDS:.0f} s") from None
        except ClientDisconnect:
            raise HTTPException(400, "the client disconnected before the end of the request body") from None
        if headers.get("content-encoding", "").strip().lower() == "gzip":
            body = _unpack(body, largest)
            scope = {**scope, "headers": list(scope["headers"])}
            changed = MutableHeaders(scope=scope)
            del changed["content-encoding"]
            changed["content-length"] = str(len(body))
        if is_protobuf:
            check_otlp_size(body)
        else:
            _check_json_size(body, _MOST_JSON_VALUES_OF.get(scope["path"], _MOST_JSON_VALUES))
        self._check_held(len(body), self._held + len(body))
        self._held += len(body)
        return scope, body

    async def _read(self, request: Request, largest: int) -> bytes:
        body = bytearray()
        try:
            async for chunk in request.stream():
                body += chunk
                self._held += len(chunk)
                if len(body) > largest:
                    raise _too_large(largest)
                self._check_held(len(body), self._held)
        finally:
            self._held -= len(body)
        return bytes(body)

    def _check_held(self, size: int, held: int) -> None:
        """Raise HTTPException for a body of ``size`` bytes with which more than the limit is held.

        Small bodies are always accepted: heartbeats must not fail because of others' large ones.
        """
        if size > _SMALL_BYTES and held > _HELD_REQUESTS * self._largest:
            raise HTTPException(503, "too many large requests at once; retry", {"Retry-After": "1"})


def _unpack(body: bytes, largest: int) -> bytes:
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(body)) as packed:
            unpacked = packed.read(largest + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise HTTPException(400, f"request body is not valid gzip: {error}") from None
    if len(unpacked) > largest:
        raise _too_large(largest)
    return unpacked


def _check_json_size(body: bytes, most: int) -> None:
    """Memory grows with the number of values; every one but the first has its own comma or bracket."""
    if len(body) > most and sum(map(body.count, (b",", b"[", b"{"))) > most:
        raise HTTPException(413, f"a request here may have at most {most} JSON values, a fixed limit; send fewer")


def _too_large(largest: int) -> HTTPException:
    return HTTPException(413, f"a request may have at most {largest} bytes, decompressed; send smaller requests")
