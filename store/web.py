"""What stands between the network and the stock server: size limits, clear refusals, no traceback in any answer."""

import asyncio
import gzip
import io
import logging
import sqlite3
import zlib
from collections.abc import Awaitable, Callable, Sequence

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.cors import CORSMiddleware
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from store.auth import BearerAuthentication
from store.errors import Conflict, UnknownId

logger = logging.getLogger(__name__)

HEALTH_PATH = "/v1/agl/health"
DEFAULT_LARGEST_REQUEST_BYTES = 64 * 1024 * 1024

_LONGEST_DETAIL = 500
_REFUSALS: dict[type[Exception], int] = {UnknownId: 404, Conflict: 409, ValueError: 400, sqlite3.Error: 503}
"""Status by type of error, of which the nearest base counts. 5xx tells the client to try again."""


def protect(
    app: FastAPI,
    *,
    token: str | None = None,
    largest_request_bytes: int = DEFAULT_LARGEST_REQUEST_BYTES,
    cors_origins: Sequence[str] = (),
) -> None:
    """Put authentication (where there is a token), limits and clear errors around the stock server's app."""
    for error_type, status in _REFUSALS.items():
        app.add_exception_handler(error_type, _refuse_with(status))
    app.add_exception_handler(RequestValidationError, _refuse_invalid)
    # What is added last is outermost. CORS comes before authentication, since browsers ask for it without a token.
    app.add_middleware(CalmAnswers)
    app.add_middleware(LimitedBody, largest_bytes=largest_request_bytes)
    if token is not None:
        app.add_middleware(BearerAuthentication, token=token)
    app.add_middleware(HealthFirst)
    if cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=["*"] if "*" in cors_origins else list(cors_origins),
            allow_methods=["*"],
            allow_headers=["*"],
            expose_headers=["*"],
        )


class HealthFirst:
    """ASGI middleware: answers the health check, which is open to everybody, without reading what comes with it."""

    def __init__(self, app: ASGIApp):
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on what is no health check."""
        if scope["type"] != "http" or scope["path"] != HEALTH_PATH:
            await self._app(scope, receive, send)
        elif scope["method"] in ("GET", "HEAD"):
            await JSONResponse({"status": "ok"})(scope, receive, send)
        else:
            refusal = {"detail": "the health check is asked for with GET"}
            await JSONResponse(refusal, status_code=405, headers={"Allow": "GET, HEAD"})(scope, receive, send)


def _refuse_with(status: int) -> Callable[[Request, Exception], Awaitable[JSONResponse]]:
    async def refuse(request: Request, error: Exception) -> JSONResponse:
        detail = str(error)[:_LONGEST_DETAIL]
        log = logger.error if status >= 500 else logger.warning
        log("%s %s answered %d: %s", request.method, request.url.path, status, detail)
        return JSONResponse({"detail": detail}, status_code=status)

    return refuse


async def _refuse_invalid(request: Request, error: RequestValidationError) -> JSONResponse:
    """Names what is wrong and where, without the data itself, which may be large or no JSON at all."""
    problems = [f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}" for problem in error.errors()]
    detail = "; ".join(problems)[:_LONGEST_DETAIL]
    logger.warning("%s %s answered 422: %s", request.method, request.url.path, detail)
    return JSONResponse({"detail": detail}, status_code=422)


class LimitedBody:
    """ASGI middleware: refuses bodies over a size with 413, and unpacks gzip itself, up to the same size."""

    def __init__(self, app: ASGIApp, largest_bytes: int):
        self._app = app
        self._largest = largest_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on with its whole body, or refuse it."""
        headers = Headers(scope=scope) if scope["type"] == "http" else {}
        if not ("content-length" in headers or "transfer-encoding" in headers):
            await self._app(scope, receive, send)
            return
        try:
            body = await self._read(headers, receive)
            if headers.get("content-encoding", "").strip().lower() == "gzip":
                body = self._unpack(body)
                scope = {**scope, "headers": list(scope["headers"])}
                changed = MutableHeaders(scope=scope)
                del changed["content-encoding"]
                changed["content-length"] = str(len(body))
        except _Refused as refusal:
            logger.warning("%s %s answered %d: %s", scope["method"], scope["path"], refusal.status, refusal)
            await JSONResponse({"detail": str(refusal)}, status_code=refusal.status)(scope, receive, send)
            return
        whole: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def replay() -> Message:
            return whole.pop() if whole else await receive()

        await self._app(scope, replay, send)

    async def _read(self, headers: Headers, receive: Receive) -> bytes:
        announced = headers.get("content-length", "0")
        if announced.isdecimal() and int(announced) > self._largest:
            raise self._too_large()
        chunks, size, more = [], 0, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise _Refused(400, "the connection ended before the request did")
            chunks.append(message.get("body", b""))
            size += len(chunks[-1])
            if size > self._largest:
                raise self._too_large()
            more = message.get("more_body", False)
        return b"".join(chunks)

    def _unpack(self, body: bytes) -> bytes:
        try:
            with gzip.GzipFile(fileobj=io.BytesIO(body)) as packed:
                unpacked = packed.read(self._largest + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise _Refused(400, f"the body is not the gzip that its header says: {error}") from error
        if len(unpacked) > self._largest:
            raise self._too_large()
        return unpacked

    def _too_large(self) -> "_Refused":
        return _Refused(413, f"a request may have {self._largest} bytes, unpacked; send less at a time")


class _Refused(Exception):
    def __init__(self, status: int, message: str):
        super().__init__(message)
        self.status = status


class CalmAnswers:
    """ASGI middleware: no traceback leaves the hub, and a request that hangs when it stops gets an answer, too."""

    def __init__(self, app: ASGIApp):
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and the answer back, unless it is a 500."""
        begun = replaced = False

        async def send_on(message: Message) -> None:
            nonlocal begun, replaced
            if message["type"] == "http.response.start" and message["status"] == 500:
                replaced = True
                answer = JSONResponse({"detail": "internal error; the hub's log says more"}, status_code=500)
                await answer(scope, receive, send)
            elif not replaced:
                await send(message)
            begun = True

        try:
            await self._app(scope, receive, send_on)
        except asyncio.CancelledError:  # only the server cancels a request, and only when it stops
            if not begun:
                await JSONResponse({"detail": "the hub is stopping"}, status_code=503)(scope, receive, send)
