"""What stands between the network and the stock server: who may ask, how much, and answers that say what is wrong."""

import logging
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse

from store.errors import Conflict, UnknownId
from store.hub.access import AccessMiddleware
from store.hub.body_limits import BodyLimitMiddleware
from store.hub.database.database import DatabaseUnavailable
from store.hub.routes import describe_problems
from store.printable import printable

logger = logging.getLogger(__name__)

_LONGEST_DETAIL = 500
_STATUSES: dict[type[Exception], int] = {
    UnknownId: 404,
    Conflict: 409,
    ValueError: 400,
    sqlite3.Error: 503,
    DatabaseUnavailable: 503,
}
"""Of errors that the store raises; 5xx tells the client to retry."""


def protect(app: FastAPI, *, largest_request_bytes: int, cors_origins: Sequence[str], **door: Any) -> None:
    """Put a door, limits and clear errors around the stock server's app. door: see ``AccessMiddleware``."""
    for error_type, status in _STATUSES.items():
        app.add_exception_handler(error_type, _refusal(status))
    app.add_exception_handler(RequestValidationError, _refuse_invalid)
    app.add_exception_handler(Exception, _fail)
    # What is added last is outermost. CORS comes before the token is looked at, since browsers ask for it without one.
    app.add_middleware(BodyLimitMiddleware, largest_bytes=largest_request_bytes)
    app.add_middleware(AccessMiddleware, origins=cors_origins, **door)
    if cors_origins:
        origins = ["*"] if "*" in cors_origins else list(cors_origins)
        app.add_middleware(
            CORSMiddleware, allow_origins=origins, allow_methods=["*"], allow_headers=["*"], expose_headers=["*"]
        )


def _refusal(status: int) -> Callable[[Request, Exception], Awaitable[JSONResponse]]:
    log = logger.error if status >= 500 else logger.warning

    async def refuse(request: Request, error: Exception) -> JSONResponse:
        detail = printable(str(error)[:_LONGEST_DETAIL])
        log("%s %s answered %d: %s", request.method, printable(request.url.path), status, detail)
        return JSONResponse({"detail": detail}, status, {"Retry-After": "1"} if status == 503 else None)

    return refuse


async def _refuse_invalid(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    return JSONResponse({"detail": describe_problems(error.errors())}, 422)


async def _fail(_: Request, error: Exception) -> JSONResponse:
    """A bug: it ends this request alone; Starlette raises it again, for the log."""
    return JSONResponse({"detail": "internal error; the hub's log says more"}, 500)
