"""What stands between the network and the stock server: who may ask, how much, and answers that say what is wrong."""

import logging
import sqlite3
from collections.abc import Awaitable, Callable, Iterable, Sequence

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from store.auth import BearerAuthentication
from store.errors import Conflict, UnknownId
from store.hub.bodies import DEFAULT_LARGEST_REQUEST_BYTES, LimitedBody
from store.hub.database.database import DatabaseAway
from store.hub.origins import OwnNameAndOrigin
from store.hub.routes import described
from store.printable import printable

logger = logging.getLogger(__name__)

HEALTH_PATH = "/v1/agl/health"

_LONGEST_DETAIL = 500
_STATUSES: dict[type[Exception], int] = {
    UnknownId: 404,
    Conflict: 409,
    ValueError: 400,
    sqlite3.Error: 503,
    DatabaseAway: 503,
}
"""Of errors that the store raises; 5xx tells the client to retry."""

_LATER = {"Retry-After": "1"}


def protect(
    app: FastAPI,
    *,
    token: str | None = None,
    largest_request_bytes: int = DEFAULT_LARGEST_REQUEST_BYTES,
    names: Iterable[str] | None = None,
    public_names: Iterable[str] = (),
    cors_origins: Sequence[str] = (),
    healthy: Callable[[], bool] = lambda: True,
) -> None:
    """Put authentication (where there is a token), limits and clear errors around the stock server's app.

    names, public_names, cors_origins: see ``OwnNameAndOrigin``. healthy: see ``HealthFirst``.
    """
    for error_type, status in _STATUSES.items():
        app.add_exception_handler(error_type, _refusal(status))
    app.add_exception_handler(RequestValidationError, _refuse_invalid)
    app.add_exception_handler(Exception, _fail)
    # What is added last is outermost. CORS comes before authentication, since browsers ask for it without a token.
    app.add_middleware(LimitedBody, largest_bytes=largest_request_bytes)
    if token is not None:
        app.add_middleware(BearerAuthentication, token=token)
    app.add_middleware(OwnNameAndOrigin, names=names, public_names=public_names, origins=cors_origins)
    app.add_middleware(HealthFirst, healthy=healthy)
    if cors_origins:
        origins = ["*"] if "*" in cors_origins else list(cors_origins)
        app.add_middleware(
            CORSMiddleware, allow_origins=origins, allow_methods=["*"], allow_headers=["*"], expose_headers=["*"]
        )


class HealthFirst:
    """ASGI middleware: answers the health check, which is open to everybody, without reading its body.

    healthy: False while the database is away: clients then wait as for a hub that is away.
    """

    def __init__(self, app: ASGIApp, healthy: Callable[[], bool]):
        self._app = app
        self._healthy = healthy

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != HEALTH_PATH:
            await self._app(scope, receive, send)
            return
        if scope["method"] not in ("GET", "HEAD"):
            answer = JSONResponse({"detail": "the health check is a GET"}, 405, {"Allow": "GET, HEAD"})
        elif self._healthy():
            answer = JSONResponse({"status": "ok"})
        else:
            answer = JSONResponse({"detail": "the database is away"}, 503, _LATER)
        await answer(scope, receive, send)


def _refusal(status: int) -> Callable[[Request, Exception], Awaitable[JSONResponse]]:
    log = logger.error if status >= 500 else logger.warning

    async def refuse(request: Request, error: Exception) -> JSONResponse:
        detail = printable(str(error)[:_LONGEST_DETAIL])
        log("%s %s answered %d: %s", request.method, printable(request.url.path), status, detail)
        return JSONResponse({"detail": detail}, status, _LATER if status == 503 else None)

    return refuse


async def _refuse_invalid(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    return JSONResponse({"detail": described(error.errors())}, 422)


async def _fail(_: Request, error: Exception) -> JSONResponse:
    """A bug: it ends this request alone; Starlette raises it again, for the log."""
    return JSONResponse({"detail": "internal error; the hub's log says more"}, 500)
