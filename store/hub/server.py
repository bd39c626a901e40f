"""The hub: agentlightning's server with a durable store, access control, and its own watchdog task."""

import asyncio
import contextlib
import errno
import gc
import logging
import os
import resource
import signal
import socket
import sqlite3
import ssl
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from agentlightning import InMemoryLightningStore, LightningStore, LightningStoreServer, Rollout
from agentlightning.utils.metrics import MetricsBackend
from starlette.middleware import Middleware

from store.addresses import is_loopback
from store.errors import OneLineError, UnknownId
from store.hub.connections import HeaderLimitProtocol
from store.hub.database.database import DatabaseUnavailable
from store.hub.database.lightning_store import SqlLightningStore
from store.hub.database.opening import DatabaseAddress, opened_store
from store.hub.database.sqlite import lock_database
from store.hub.retention import RetentionRule, delete_old_rollouts
from store.hub.routes import routes
from store.hub.web import protect

logger = logging.getLogger(__name__)

_WATCHDOG_SECONDS = 1.0
_LONGEST_ROUND_SECONDS = 10.0  # of the watchdog
_RETENTION_SECONDS = 60.0
_PASSING_ERRORS = (sqlite3.OperationalError, DatabaseUnavailable)  # such as a full disk
_LAST_REQUESTS_SECONDS = 5
_CONNECTIONS_WAITING = 2048


class CannotServe(OneLineError):
    """The hub cannot start with these settings."""


@dataclass(frozen=True)
class HubSettings:
    """Settings of a hub.

    port: 0 for any free one. database: None for memory only; fsync: see ``SqliteDatabase``.
    token: None disables authentication; no_auth: also on an address that other machines can reach.
    public_names: further host names, see ``store.hub.access``.
    certificate, key: PEM files; None serves plain HTTP.
    n_workers: processes; more than one needs a PostgreSQL database.
    retention: of finished rollouts; None keeps all.
    """

    host: str
    port: int
    database: DatabaseAddress | None
    fsync: bool = False
    token: str | None = None
    no_auth: bool = False
    public_names: Sequence[str] = ()
    largest_request_bytes: int = 64 * 1024 * 1024
    cors_origins: Sequence[str] = ()
    certificate: Path | None = None
    key: Path | None = None
    n_workers: int = 1
    tracker: MetricsBackend | None = None
    retention: RetentionRule | None = None


class Hub(LightningStoreServer):
    """The stock server's app, served here instead of by its own launcher.

    The launcher has no TLS, does not report a port in use, and waits forever for a hanging request when it stops.
    """

    def __init__(self, store: LightningStore, settings: HubSettings, port: int):
        super().__init__(store, settings.host, port, tracker=settings.tracker)
        assert self.app is not None
        self._settings = settings
        # Keeps the stock middleware for a tracker, without those for log lines and for tracebacks in responses.
        self.app.user_middleware = [one for one in self.app.user_middleware if _is_for_a_tracker(one)]
        stock = self.app.router.routes
        for route in routes(store):
            before = (place for place, one in enumerate(stock) if getattr(one, "path", None) == route.path)
            stock.insert(next(before, 0), route)
        checks_names = settings.token is None or settings.public_names
        protect(
            self.app,
            largest_request_bytes=settings.largest_request_bytes,
            cors_origins=settings.cors_origins,
            token=settings.token,
            names={settings.host, socket.gethostname()} if checks_names else None,
            public_names=settings.public_names,
            healthy=lambda: not isinstance(store, SqlLightningStore) or store.collections.database.answers,
        )

    async def get_rollout_by_id(self, rollout_id: str) -> Rollout:
        """The rollout. Raises UnknownId, where the stock server fails on an unexpected None."""
        rollout = await super().get_rollout_by_id(rollout_id)
        if rollout is None:
            raise UnknownId(f"rollout {rollout_id!r} does not exist")
        return rollout

    async def serve(self, listener: socket.socket, parent: int | None = None) -> None:
        """Serve until SIGINT or SIGTERM, then finish open requests.

        parent: id of the parent process; when it ends, the hub stops.
        """
        assert self.app is not None and self.store is not None
        config = uvicorn.Config(
            self.app,
            http=HeaderLimitProtocol,
            ws="none",
            log_config=None,
            access_log=False,
            lifespan="off",
            timeout_keep_alive=30,
            timeout_graceful_shutdown=_LAST_REQUESTS_SECONDS,
            ssl_certfile=self._settings.certificate,
            ssl_keyfile=self._settings.key,
        )
        server = uvicorn.Server(config)
        # A full garbage collection of imported modules blocks the event loop for tenths of a second.
        gc.collect()
        gc.freeze()
        with _signals_end_quietly():
            async with asyncio.TaskGroup() as group:  # an error of a helper stops the hub
                helpers = [group.create_task(watch(self.store))]
                if self._settings.retention is not None and isinstance(self.store, SqlLightningStore):
                    helpers.append(group.create_task(retain(self.store, self._settings.retention)))
                if parent is not None:
                    helpers.append(group.create_task(_stop_with_parent(parent, server)))
                await server.serve([listener])
                for helper in helpers:
                    helper.cancel()


def _is_for_a_tracker(layer: Middleware) -> bool:
    return getattr(layer.kwargs.get("dispatch"), "__name__", "") == "tracking_middleware"


async def watch(store: LightningStore) -> None:
    """Close overdue attempts every second. Never returns."""
    was_away, begun = False, time.monotonic()
    while True:
        # The process was stopped, or the event loop blocked: heartbeats wait unread.
        was_away |= time.monotonic() - begun > _LONGEST_ROUND_SECONDS
        begun = time.monotonic()
        try:
            if isinstance(store, SqlLightningStore):
                if was_away:
                    store.reset_heartbeat_timers()
                await store.close_overdue()
                await store.collections.compact_counts()
                was_away = False
            else:
                await store.wait_for_rollouts(rollout_ids=[], timeout=0)  # the stock store scans at every call
        except _PASSING_ERRORS as error:
            was_away = True
            logger.error("the watchdog cannot write to the database: %s; retrying", error)
        await asyncio.sleep(_WATCHDOG_SECONDS)


async def retain(store: SqlLightningStore, rule: RetentionRule) -> None:
    """Delete old rollouts every minute. Never returns."""
    while True:
        try:
            if deleted := await delete_old_rollouts(store.collections, rule):
                logger.info("%d old rollouts deleted", deleted)
        except _PASSING_ERRORS as error:
            logger.error("old rollouts cannot be deleted: %s; retrying in %.0f s", error, _RETENTION_SECONDS)
        await asyncio.sleep(_RETENTION_SECONDS)


async def _stop_with_parent(parent: int, server: uvicorn.Server) -> None:
    while os.getppid() == parent:
        await asyncio.sleep(_WATCHDOG_SECONDS)
    logger.error("the hub's parent process has died; this worker stops")
    server.should_exit = True


def require_auth(settings: HubSettings) -> None:
    """Raises CannotServe for a hub that is reachable by other machines without a token, unless ``no_auth``."""
    if settings.token is None and not settings.no_auth and not is_loopback(settings.host):
        raise CannotServe(
            f"{settings.host} is reachable by other machines without a token: set one with --token-file or "
            f"AGL_TOKEN, or allow access to everyone with --no-auth"
        )


def check_certificate(settings: HubSettings) -> None:
    """Raises CannotServe for a certificate or a key that cannot be used."""
    if settings.certificate is None:
        return
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(settings.certificate, settings.key)
    except OSError as error:  # ssl.SSLError is one
        raise CannotServe(
            f"cannot use the certificate {settings.certificate} with the key {settings.key}: {error}"
        ) from error


async def run(settings: HubSettings) -> None:
    """Run a hub until SIGINT or SIGTERM. Raises CannotServe or DatabaseUnusable."""
    require_auth(settings)
    allow_many_connections()
    with listen(settings.host, settings.port) as listener:
        await serve(settings, listener)
    logger.info("the hub has stopped")


async def serve(settings: HubSettings, listener: socket.socket, parent: int | None = None) -> None:
    """Serve at a socket until SIGINT or SIGTERM; see ``Hub.serve``. Raises CannotServe or DatabaseUnusable."""
    check_certificate(settings)
    port = listener.getsockname()[1]
    async with open_store(settings) as store:
        hub = Hub(store, settings, port)
        _announce(settings, port)
        await hub.serve(listener, parent)


@asynccontextmanager
async def open_store(settings: HubSettings) -> AsyncIterator[LightningStore]:
    """The store of a hub, closed on exit. Raises DatabaseUnusable."""
    place = settings.database
    if place is None:
        logger.warning("backend memory: all data is lost when the hub stops")
        yield InMemoryLightningStore(thread_safe=True, tracker=settings.tracker)
        return
    with lock_database(place) if isinstance(place, Path) else contextlib.nullcontext():
        async with opened_store(place, fsync=settings.fsync, tracker=settings.tracker) as store:
            waiting = await store.collections.rollout_queue.size()
            logger.info("database %s: %d rollouts wait for a runner", store.collections.database.name, waiting)
            yield store


def listen(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """A listening socket. Raises CannotServe when the port is in use or the address is not this machine's.

    asyncio disables Nagle's algorithm only for sockets with TCP's protocol number, which ``create_server`` does not
    set; with it, every small response waits some 40 ms for an acknowledgement of its first half.

    shared: the kernel distributes connections over all processes of the user that share the port.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        # Some machines list ::1 first for localhost, where clients of 127.0.0.1 would find nothing.
        family, _, _, _, address = min(found, key=lambda one: host == "localhost" and one[0] != socket.AF_INET)
        listener = socket.create_server(address, family=family, backlog=_CONNECTIONS_WAITING, reuse_port=shared)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # connections inherit it
        return listener
    except (OSError, OverflowError) as error:
        taken = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
        reason = "the port is in use; stop that server, or choose another with --port" if taken else error
        raise CannotServe(f"cannot listen on {host} port {port}: {reason}") from error


def _announce(settings: HubSettings, port: int) -> None:
    scheme = "http" if settings.certificate is None else "https"
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    logger.info("the hub listens at %s://%s:%d", scheme, host, port)
    if settings.token is None and not is_loopback(settings.host):
        logger.warning("no authentication: %s port %d gives everyone full access", settings.host, port)


def allow_many_connections() -> None:
    """Raise the limit of open files, by default often 1024: each connection is one."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


@contextmanager
def _signals_end_quietly():
    """Ignore the signals that uvicorn raises again after its shutdown, which would kill our own."""
    previous = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
