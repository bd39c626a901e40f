"""Who may ask a hub: whoever has its token, and no page of another site.

A browser sends requests of any site's pages, too: across sites, which the ``Origin`` header shows, or because the site
gave its own name the hub's address (DNS rebinding), which ``Host`` shows. Such a page does not know the hub's token;
where there is one, names are only checked if some are given.
"""

import hmac
import ipaddress
import logging
import socket
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
    """ASGI middleware: answers the health check, and refuses others whom the hub does not serve; no body is read.

    token: None lets everybody in. names: what the hub is called besides addresses and ``localhost``; None takes every
    name for its own. public_names: those that a proxy before the hub may have; pages of theirs are the hub's own, at
    any port. origins: web origins whose pages may call the hub; "*" is all. healthy: False while the database is away:
    clients then wait as for a hub that is away.
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
            return JSONResponse({"detail": "the health check is a GET"}, 405, {"Allow": "GET, HEAD"})
        if not self._healthy():
            return JSONResponse({"detail": "the database is away"}, 503, {"Retry-After": "1"})
        return JSONResponse({"status": "ok"})

    def _refusal(self, scope: Scope) -> JSONResponse | None:
        headers = Headers(scope=scope)
        host, origin = headers.get("host", ""), headers.get("origin")
        if not self._is_own(host):
            status, detail = 421, f"this hub is not called {_shown(host)}; start it with --public-name if it is"
        elif origin is not None and not self._may_come_from(origin, host):
            status, detail = 403, f"pages of {_shown(origin)} may not call this hub; --cors-origin lets them"
        elif not self._is_known(headers.getlist("authorization")):
            status, detail = 401, f"this hub wants its token as `Authorization: Bearer ...`; set {TOKEN_VARIABLE}"
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
        if scheme in _PORTS:  # "null" is that of a page that hides where it comes from
            with suppress(ValueError):
                place = _place(authority, scheme)
                return place == _place(host, scheme) or place[0] in self._public_names
        return False

    def _is_known(self, given: list[str]) -> bool:
        if self._token is None:
            return True
        scheme, _, token = given[0].partition(" ") if len(given) == 1 else ("", "", "")
        return scheme.lower() == "bearer" and hmac.compare_digest(token.encode("latin-1"), self._token)


def host_names(host: str) -> set[str]:
    """What a hub that listens at ``host`` is called anyway: that, and this machine's name."""
    return {host, socket.gethostname()}


def _place(authority: str, scheme: str) -> tuple[str, int]:
    """Name in small letters, and port. Raises ValueError."""
    parts = urlsplit(f"{scheme}://{authority}")
    return (parts.hostname or "").rstrip("."), parts.port or _PORTS[scheme]


def _shown(text: str) -> str:
    return repr(printable(text[:200]))
