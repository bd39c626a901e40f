"""Access control of the web server: access token, origin checks, security headers.

Loopback needs no token; any other address does. A seat's link contains a secret for that seat alone
(``runners.werewolf.web.tables``), so it needs no token.
"""

import hashlib
import hmac
from collections.abc import Awaitable, Callable, Iterable
from urllib.parse import SplitResult, urlsplit

from aiohttp import web

from store.addresses import is_loopback
from store.printable import printable

GUEST = web.RequestKey("guest", bool)
"""Of a request: whether it lacks the access token, so that it may open a seat alone."""
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",  # addresses of seats are secrets
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}
_TOKEN_NEEDED = (
    "需要访问令牌：请用启动时打印出来的、带 ?token=… 的地址。\n"
    "Access token required: open the address with ?token=… that was printed at the start."
)
_OPEN = ("/static/", "/seat/", "/api/seat/", "/favicon.ico")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def guard(token: str | None, hosts: Iterable[str]) -> Callable[..., Awaitable[web.StreamResponse]]:
    """aiohttp middleware. token: required by all requests except a seat's; None on loopback. hosts: further names."""
    known = {host.lower() for host in hosts}

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        _check_host(request, known)
        _check_origin(request)
        request[GUEST] = token is not None and not _has_token(request, token)
        if token is not None and not request.path.startswith(_OPEN):
            given = request.query.get("token")
            if given is not None and request.method == "GET" and _same(given, token):
                # Redirect to remove the token from the address bar, screenshots and histories.
                response = web.HTTPFound(request.rel_url.without_query_params("token"))
                # Lax, since with Strict a browser would not send it after a click on a link on another site. Posts from
                # other sites are rejected by their Origin.
                response.set_cookie(_cookie(token), token, httponly=True, samesite="Lax", path="/")
                response.headers.update(HEADERS)
                raise response
            if request[GUEST]:
                raise _refusal(web.HTTPUnauthorized, _TOKEN_NEEDED)
        return await handler(request)

    return middleware


async def add_headers(request: web.Request, response: web.StreamResponse) -> None:
    """Handler of aiohttp's signal ``on_response_prepare``."""
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    response.headers["Cache-Control"] = "no-cache" if request.path.startswith("/static/") else "no-store"


def _has_token(request: web.Request, token: str) -> bool:
    bearer = request.headers.get("Authorization", "").removeprefix("Bearer ")
    return any(_same(given, token) for given in (request.cookies.get(_cookie(token), ""), bearer))


def _cookie(token: str) -> str:
    """A name of its own for each token: a browser sends a host's cookies to all of its ports."""
    return f"werewolf_{hashlib.sha256(token.encode()).hexdigest()[:12]}"


def _same(given: str, token: str) -> bool:
    # Invalid UTF-8 arrives as lone surrogates.
    return hmac.compare_digest(given.encode("utf-8", "surrogateescape"), token.encode())


def _address(text: str) -> SplitResult:
    """The parts of a URL from a header; empty for an invalid one (``http://[::1``)."""
    try:
        return urlsplit(text)
    except ValueError:
        return urlsplit("")


def _check_host(request: web.Request, known: set[str]) -> None:
    """Reject unknown host names, against DNS rebinding."""
    name = (_address(f"//{request.host}").hostname or "").lower()
    if not is_loopback(name) and name not in known:
        shown = printable(name)  # lone surrogates cannot be encoded
        raise _refusal(web.HTTPForbidden, f"unknown host {shown!r}; allow it with --public-host {shown}")


def _check_origin(request: web.Request) -> None:
    """Reject cross-site requests: other pages can neither set the header nor read the answer."""
    changes = request.method not in ("GET", "HEAD")
    origin = request.headers.get("Origin")
    site = request.headers.get("Sec-Fetch-Site", "same-origin")
    elsewhere = site not in ("same-origin", "none") and (changes or request.path.startswith("/api/"))
    if elsewhere or (origin is not None and _address(origin).netloc.lower() != request.host.lower()):
        raise _refusal(web.HTTPForbidden, "cross-site request rejected")
    if changes and (request.content_type != "application/json" or "X-Werewolf" not in request.headers):
        raise _refusal(web.HTTPForbidden, "a POST needs the header X-Werewolf and a JSON body")


def _refusal(kind: type[web.HTTPException], reason: str) -> web.HTTPException:
    return kind(text=reason, content_type="text/plain")
