"""Middleware and exception handlers around the stock server."""

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
from store.hub.routes import LONGEST_DETAIL, describe_problems
from store.printable import printable

logger = logging.getLogger(__name__)

_STATUSES: dict[type[Exception], int] = {
    UnknownId: 404,
    Conflict: 409,
    ValueError: 400,
    sqlite3.Error: 503,
    DatabaseUnavailable: 503,
}
"""Statuses of the store's errors; clients retry 5xx."""


def protect(app: FastAPI, *, largest_request_bytes: int, cors_origins: Sequence[str], **access: Any) -> None:
    """Add access control, limits and exception handlers to the stock server's app. access: of ``AccessMiddleware``."""
    for error_type, status in _STATUSES.items():
        app.add_exception_handler(error_type, _refusal(status))
    app.add_exception_handler(RequestValidationError, _refuse_invalid)
    app.add_exception_handler(Exception, _fail)
    # Outermost is last: CORS comes before the token check, since browsers send preflight requests without a token.
    app.add_middleware(BodyLimitMiddleware, largest_bytes=largest_request_bytes)
    app.add_middleware(AccessMiddleware, origins=cors_origins, **access)
    if cors_origins:
        origins = ["*"] if "*" in cors_origins else list(cors_origins)
        app.add_middleware(
            CORSMiddleware, allow_origins=origins, allow_methods=["*"], allow_headers=["*"], expose_headers=["*"]
        )


def _refusal(status: int) -> Callable[[Request, Exception], Awaitable[JSONResponse]]:
    log = logger.error if status >= 500 else logger.warning

    async def refuse(request: Request, error: Exception) -> JSONResponse:
        detail = printable(str(error)[:LONGEST_DETAIL])
        log("%s %s answered %d: %s", request.method, printable(request.url.path), status, detail)
        return JSONResponse({"detail": detail}, status, {"Retry-After": "1"} if status == 503 else None)

    return refuse


async def _refuse_invalid(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    return JSONResponse({"detail": describe_problems(error.errors())}, 422)


async def _fail(_: Request, error: Exception) -> JSONResponse:
    """Response to a bug; Starlette raises it again, for the log."""
    return JSONResponse({"detail": "internal error; see the hub's log"}, 500)
