"""What stands between the network and the stock server: who may ask, how much, and answers that say what is wrong."""

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Iterable, Sequence

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.cors import CORSMiddleware
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from store.auth import BearerAuthentication
from store.errors import Conflict, UnknownId
from store.hub.bodies import DEFAULT_LARGEST_REQUEST_BYTES, LimitedBody
from store.hub.database.database import DatabaseAway
from store.hub.origins import OwnNameAndOrigin
from store.printable import printable

logger = logging.getLogger(__name__)

HEALTH_PATH = "/v1/agl/health"

_LONGEST_DETAIL = 500
_REFUSALS: dict[type[Exception], int] = {
    UnknownId: 404,
    Conflict: 409,
    ValueError: 400,
    sqlite3.Error: 503,
    DatabaseAway: 503,
}
"""Status by type of error, the special before the general. 5xx tells the client to try again."""

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
    for error_type in _REFUSALS:
        app.add_exception_handler(error_type, _refuse)
    app.add_exception_handler(RequestValidationError, _refuse_invalid)
    # What is added last is outermost. CORS comes before authentication, since browsers ask for it without a token.
    app.add_middleware(CalmAnswers)
    app.add_middleware(LimitedBody, largest_bytes=largest_request_bytes)
    if token is not None:
        app.add_middleware(BearerAuthentication, token=token)
    app.add_middleware(OwnNameAndOrigin, names=names, public_names=public_names, origins=cors_origins)
    app.add_middleware(HealthFirst, healthy=healthy)
    if cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=["*"] if "*" in cors_origins else list(cors_origins),
            allow_methods=["*"],
            allow_headers=["*"],
            expose_headers=["*"],
        )


class HealthFirst:
    """ASGI middleware: answers the health check, which is open to everybody, without reading what comes with it.

    healthy: False while the database is away: clients then wait as for a hub that is away.
    """

    def __init__(self, app: ASGIApp, healthy: Callable[[], bool]):
        self._app = app
        self._healthy = healthy

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on what is no health check."""
        if scope["type"] != "http" or scope["path"] != HEALTH_PATH:
            await self._app(scope, receive, send)
        elif scope["method"] in ("GET", "HEAD"):
            healthy = self._healthy()
            answer = {"status": "ok"} if healthy else {"detail": "the database is away"}
            await JSONResponse(answer, 200 if healthy else 503, None if healthy else _LATER)(scope, receive, send)
        else:
            refusal = {"detail": "the health check is asked for with GET"}
            await JSONResponse(refusal, status_code=405, headers={"Allow": "GET, HEAD"})(scope, receive, send)


def refusal(method: str, path: str, error: Exception) -> JSONResponse | None:
    """The answer to a request that the store refused with this error; None for one that nobody foresaw."""
    status = next((status for kind, status in _REFUSALS.items() if isinstance(error, kind)), None)
    if status is None:
        return None
    detail = printable(str(error)[:_LONGEST_DETAIL])
    log = logger.error if status >= 500 else logger.warning
    log("%s %s answered %d: %s", method, printable(path), status, detail)
    return JSONResponse({"detail": detail}, status, _LATER if status == 503 else None)


async def _refuse(request: Request, error: Exception) -> JSONResponse:
    answer = refusal(request.method, request.url.path, error)
    assert answer is not None  # it is called for no other errors
    return answer


async def _refuse_invalid(request: Request, error: RequestValidationError) -> JSONResponse:
    """Names what is wrong and where, without the data itself, which may be large or no JSON at all."""
    problems = [f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}" for problem in error.errors()]
    detail = printable("; ".join(problems)[:_LONGEST_DETAIL])
    logger.warning("%s %s answered 422: %s", request.method, printable(request.url.path), detail)
    return JSONResponse({"detail": detail}, status_code=422)


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
        except Exception:  # a bug: it ends this request alone, and the log has it
            logger.exception("%s %s failed", scope["method"], printable(scope["path"]))
            if not begun:
                await send_on({"type": "http.response.start", "status": 500, "headers": []})
