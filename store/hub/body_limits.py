"""How much of a request the hub takes: bytes, unpacked bytes, JSON values, seconds, and all requests together."""

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

DEFAULT_LARGEST_REQUEST_BYTES = 64 * 1024 * 1024

_JSON_SHARE = 4
"""JSON may have this part of the bytes of other requests: as objects it takes many times its size."""

_MOST_JSON_VALUES = 50_000
_MOST_JSON_VALUES_OF = {"/v1/agl/spans": 500_000, "/v1/agl/queues/rollouts/enqueue": 500_000}
"""Where the first bad value ends a request (``store.hub.routes``) there may be many; elsewhere all of them are told."""

_HELD_REQUESTS = 4
"""Requests that have not come in whole may hold as much memory together as this many of the largest."""

_SECONDS = 60.0


class BodyLimitMiddleware:
    """ASGI middleware: hands a request on with its whole body, unpacked if it is gzip, or refuses it.

    413: it is larger than ``largest_bytes`` allows, or has too many JSON values. 408: it did not come within a minute.
    503: too much of other requests is on its way. 400: it is not the gzip that it says it is.
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
            # No other local may name the error: with its traceback it would keep this frame and the body in memory.
            status, detail = error.status_code, error.detail
            logger.warning("%s %s answered %d: %s", scope["method"], printable(scope["path"]), status, detail)
            await JSONResponse({"detail": detail}, status)(scope, receive, send)
            return
        whole: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def replay() -> Message:
            return whole.pop() if whole else await receive()

        await self._app(scope, replay, send)

    async def _whole(self, scope: Scope, headers: Headers, receive: Receive) -> tuple[Scope, bytes]:
        """The request without its gzip, and its body. Raises HTTPException."""
        is_protobuf = headers.get("content-type", "").partition(";")[0].strip().lower() == "application/x-protobuf"
        largest = self._largest if is_protobuf else self._largest // _JSON_SHARE
        announced = headers.get("content-length", "0")
        if announced.isdecimal() and int(announced) > largest:
            raise _too_large(largest)
        try:
            async with asyncio.timeout(_SECONDS):
                body = await self._read(Request(scope, receive), largest)
        except TimeoutError:
            raise HTTPException(408, f"no whole body in {_SECONDS:.0f} s") from None
        except ClientDisconnect:
            raise HTTPException(400, "the connection ended before the request did") from None
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
        return scope, body

    async def _read(self, request: Request, largest: int) -> bytes:
        body = bytearray()
        try:
            async for chunk in request.stream():
                body += chunk
                self._held += len(chunk)
                if len(body) > largest:
                    raise _too_large(largest)
                if self._held > _HELD_REQUESTS * self._largest:
                    raise HTTPException(503, "too many large requests are on their way; try again")
        finally:
            self._held -= len(body)
        return bytes(body)


def _unpack(body: bytes, largest: int) -> bytes:
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(body)) as packed:
            unpacked = packed.read(largest + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise HTTPException(400, f"the body is not the gzip that its header says: {error}") from None
    if len(unpacked) > largest:
        raise _too_large(largest)
    return unpacked


def _check_json_size(body: bytes, most: int) -> None:
    """What takes memory is the number of values; every one but the first has a comma or a bracket of its own."""
    if len(body) > most and sum(map(body.count, (b",", b"[", b"{"))) > most:
        raise HTTPException(413, f"a request may have {most} JSON values here; send less at a time")


def _too_large(largest: int) -> HTTPException:
    return HTTPException(413, f"a request may have {largest} bytes, unpacked; send less at a time")
