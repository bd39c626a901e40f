"""Whether a request was meant for this hub: a browser sends others' pages' requests, too, and says so.

A page of any site may make the browser of somebody who can reach a hub send it requests: across sites, which the
``Origin`` header shows, or by giving the site's own name the hub's address (DNS rebinding), which ``Host`` shows. Such
a page does not know the hub's token; where there is one, names are only checked if some are given.
"""

import ipaddress
import logging
import socket
from collections.abc import Collection, Iterable
from contextlib import suppress

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from store.printable import printable

logger = logging.getLogger(__name__)

_LONGEST_NAME = 200


class OwnNameAndOrigin:
    """ASGI middleware: answers 421 to requests for another name and 403 to those of other sites' pages.

    names: what the hub is called besides addresses and ``localhost``; None takes every name for its own.
    public_names: those of them that a proxy before the hub may have; pages of theirs are the hub's own, at any port.
    origins: web origins whose pages may call the hub; "*" is all.
    """

    def __init__(
        self, app: ASGIApp, names: Iterable[str] | None, public_names: Iterable[str], origins: Collection[str]
    ):
        self._app = app
        self._public_names = {_name_of(name) for name in public_names}
        self._names = None if names is None else {_name_of(name) for name in names} | self._public_names
        self._origins = origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        status, detail = self._refusal(Headers(scope=scope)) if scope["type"] == "http" else (0, "")
        if not status:
            await self._app(scope, receive, send)
            return
        logger.warning("%s %s answered %d: %s", scope["method"], printable(scope["path"]), status, detail)
        await JSONResponse({"detail": detail}, status)(scope, receive, send)

    def _refusal(self, headers: Headers) -> tuple[int, str]:
        """(status, reason); status 0 for none."""
        host, origin = headers.get("host", ""), headers.get("origin")
        if not self._is_own(host):
            return 421, f"this hub is not called {_shown(host)}; start it with --public-name if it is"
        if origin is not None and not self._may_come_from(origin, host):
            return 403, f"pages of {_shown(origin)} may not call this hub; --cors-origin lets them"
        return 0, ""

    def _is_own(self, host: str) -> bool:
        if self._names is None or not host:  # every browser sends one
            return True
        name = _name_of(host)
        if name == "localhost" or name.endswith(".localhost") or name in self._names:
            return True
        with suppress(ValueError):
            return bool(ipaddress.ip_address(name))
        return False

    def _may_come_from(self, origin: str, host: str) -> bool:
        if "*" in self._origins or origin in self._origins:
            return True
        scheme, _, authority = origin.partition("://")
        if scheme not in ("http", "https"):  # "null" is that of a page that hides where it comes from
            return False
        return _with_port(authority, scheme) == _with_port(host, scheme) or _name_of(authority) in self._public_names


def own_names(host: str) -> set[str]:
    """What a hub that listens at ``host`` is called anyway: that, and this machine's name."""
    return {host, socket.gethostname()}


def _name_of(authority: str) -> str:
    """``Host`` without its port, in small letters; of ``[::1]:80`` the address."""
    if authority.startswith("["):
        return authority[1:].partition("]")[0].lower()
    return authority.partition(":")[0].lower().rstrip(".")


def _with_port(authority: str, scheme: str) -> tuple[str, str]:
    port = authority.rpartition("]")[2].partition(":")[2]
    return _name_of(authority), port or {"http": "80", "https": "443"}[scheme]


def _shown(text: str) -> str:
    return repr(printable(text[:_LONGEST_NAME]))
