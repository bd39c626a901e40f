"""Access control of the hub: its token, and protection against other sites' pages in a browser.

A browser also sends requests of other sites' pages: cross-origin ones, which have an ``Origin`` header, and ones with a
foreign ``Host`` (DNS rebinding). Such a page does not know the hub token; with a token, hosts are only checked if
``public_names`` are given.
"""

import hmac
import ipaddress
import logging
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from store.auth import TOKEN_VARIABLE
from store.printable import printable

logger = logging.getLogger(__name__)

HEALTH_PATH = "/v1/agl/health"
_PORTS = {"http": 80, "https": 443}


class AccessMiddleware:
    """ASGI middleware: responds to the health check, and rejects requests without access before it reads a body.

    token: None disables authentication. names: host names of the hub besides IP addresses and ``localhost``; None
    accepts every host. public_names: host names of a proxy before the hub; origins with them are the hub's own, at any
    port. origins: web origins that may call the hub; "*" is all. healthy: False during an outage of the database, which
    clients treat as an outage of the hub.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        token: str | None,
        names: Iterable[str] | None,
        public_names: Iterable[str],
        origins: Collection[str],
        healthy: Callable[[], bool],
    ):
        self._app = app
        self._token = None if token is None else token.encode()
        self._public_names = {name.lower() for name in public_names}
        self._names = None if names is None else {name.lower() for name in names} | self._public_names
        self._origins = origins
        self._healthy = healthy

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = self._health(scope["method"]) if scope["path"] == HEALTH_PATH else self._refusal(scope)
        await (answer or self._app)(scope, receive, send)

    def _health(self, method: str) -> JSONResponse:
        if method not in ("GET", "HEAD"):
            return JSONResponse({"detail": "use GET for the health check"}, 405, {"Allow": "GET, HEAD"})
        if not self._healthy():
            return JSONResponse({"detail": "the database is unavailable"}, 503, {"Retry-After": "1"})
        return JSONResponse({"status": "ok"})

    def _refusal(self, scope: Scope) -> JSONResponse | None:
        headers = Headers(scope=scope)
        host, origin = headers.get("host", ""), headers.get("origin")
        if not self._is_own(host):
            status, detail = 421, f"host {_shown(host)} is not allowed: start the hub with --public-name for it"
        elif origin is not None and not self._may_come_from(origin, host):
            status, detail = 403, f"origin {_shown(origin)} is not allowed: start the hub with --cors-origin for it"
        elif not self._is_known(headers.getlist("authorization")):
            status, detail = 401, f"a token is required as `Authorization: Bearer ...`: set {TOKEN_VARIABLE}"
        else:
            return None
        logger.warning("%s %s answered %d: %s", scope["method"], printable(scope["path"]), status, detail)
        return JSONResponse({"detail": detail}, status, {"WWW-Authenticate": "Bearer"} if status == 401 else None)

    def _is_own(self, host: str) -> bool:
        if self._names is None or not host:  # every browser sends one
            return True
        with suppress(ValueError):
            name, _ = _place(host, "http")
            if name == "localhost" or name.endswith(".localhost") or name in self._names:
                return True
            return bool(ipaddress.ip_address(name))
        return False

    def _may_come_from(self, origin: str, host: str) -> bool:
        if "*" in self._origins or origin in self._origins:
            return True
        scheme, _, authority = origin.partition("://")
        if scheme in _PORTS:  # "null" is the origin of a sandboxed page
            with suppress(ValueError):
                place = _place(authority, scheme)
                return place == _place(host, scheme) or place[0] in self._public_names
        return False

    def _is_known(self, given: list[str]) -> bool:
        if self._token is None:
            return True
        scheme, _, token = given[0].partition(" ") if len(given) == 1 else ("", "", "")
        return scheme.lower() == "bearer" and hmac.compare_digest(token.encode("latin-1"), self._token)


def _place(authority: str, scheme: str) -> tuple[str, int]:
    """(host name in lower case, port). Raises ValueError."""
    parts = urlsplit(f"{scheme}://{authority}")
    return (parts.hostname or "").rstrip("."), parts.port or _PORTS[scheme]


def _shown(text: str) -> str:
    return repr(printable(text[:200]))
