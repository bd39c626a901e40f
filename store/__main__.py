"""``python -m store``: the durable hub, and the tools that look after it."""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

DEFAULT_DATABASE = Path("runs/hub.sqlite3")

_DESCRIPTION = """\
The hub between the algorithm and the runners: `agl store`, made to last. Same protocol, same options; what it has
acknowledged is in one SQLite file and survives a crash, a restart and `kill -9`.
"""

_EPILOG = """\
A hub for this machine:              python -m store
For a network, with a secret:        openssl rand -hex 32 > token; chmod 600 token
                                     python -m store --host 0.0.0.0 --token-file token
                                     (runners and algorithm: export AGL_TOKEN=$(cat token))
The same, encrypted:                 add --certificate hub.pem --key hub.key, and use https:// addresses
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    return _serve(arguments)


def _serve(arguments: Sequence[str]) -> int:
    options = _serve_parser().parse_args(arguments)
    if options.n_workers > 1 and options.backend != "mongo":
        return _fail("--n-workers works with --backend mongo only: the others have one process")
    if (options.certificate is None) != (options.key is None):
        return _fail("--certificate and --key go together")

    # Only now: these imports take seconds, and --help should not.
    import asyncio

    from agentlightning import setup_logging

    from store.auth import UnusableToken, read_token
    from store.hub import CannotServe, HubSettings, run
    from store.sqlite.database import DatabaseUnusable

    setup_logging(options.log_level, color=sys.stdout.isatty(), apply_to=["store", "uvicorn"])
    try:
        settings = HubSettings(
            host=options.host,
            port=options.port,
            backend=options.backend,
            database=options.db,
            fsync=options.fsync,
            token=read_token(options.token_file),
            largest_request_bytes=int(options.max_request_mb * 1024 * 1024),
            cors_origins=options.cors_origins,
            certificate=options.certificate,
            key=options.key,
            mongo_uri=options.mongo_uri,
            mongo_partition=options.mongo_partition,
            n_workers=options.n_workers,
            tracker=_tracker(options.tracker, options.n_workers),
        )
        asyncio.run(run(settings))
    except (CannotServe, DatabaseUnusable, UnusableToken) as error:
        return _fail(str(error))
    return 0


def _serve_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m store",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (%(default)s: this machine only)")
    parser.add_argument("--port", type=_port, default=4747, help="port to listen on (%(default)s)")
    parser.add_argument(
        "--db",
        type=Path,
        default=DEFAULT_DATABASE,
        metavar="FILE",
        help="database, made if not there (%(default)s)",
    )
    parser.add_argument(
        "--fsync", action="store_true", help="flush every change to disk: slower, and survives a power cut, too"
    )
    door = parser.add_argument_group("who may use it")
    door.add_argument(
        "--token-file",
        type=Path,
        metavar="FILE",
        help="file with the token that every request must carry (default: what AGL_TOKEN holds; none: anybody)",
    )
    door.add_argument("--certificate", type=Path, metavar="PEM", help="serve https with this certificate chain")
    door.add_argument("--key", type=Path, metavar="PEM", help="private key of the certificate")
    door.add_argument(
        "--max-request-mb", type=_positive, default=64, metavar="MB", help="largest request, unpacked (%(default)s)"
    )
    door.add_argument(
        "--cors-origin",
        dest="cors_origins",
        action="append",
        default=[],
        metavar="ORIGIN",
        help="web origin whose pages may call the hub; repeat for more, '*' for all",
    )
    stock = parser.add_argument_group("as in `agl store`")
    stock.add_argument(
        "--log-level", default="INFO", choices=["DEBUG", "INFO", "WARNING", "ERROR"], help="(%(default)s)"
    )
    stock.add_argument("--tracker", nargs="+", choices=["prometheus", "console"], help="measure calls and times")
    stock.add_argument(
        "--backend", choices=["sqlite", "memory", "mongo"], default="sqlite", help="where games are kept (%(default)s)"
    )
    stock.add_argument(
        "--mongo-uri",
        default=os.environ.get("AGL_MONGO_URI", "mongodb://localhost:27017/?replicaSet=rs0"),
        help="for --backend mongo; also read from AGL_MONGO_URI, which keeps passwords out of process lists",
    )
    stock.add_argument(
        "--mongo-partition", default="hub", help="what keeps this hub's games apart in a shared database (%(default)s)"
    )
    stock.add_argument("--n-workers", type=int, default=1, help="processes, for --backend mongo (%(default)s)")
    return parser


def _port(text: str) -> int:
    if not (text.isdecimal() and int(text) < 2**16):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 to 65535")
    return int(text)


def _positive(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")
    return number


def _tracker(names: Sequence[str] | None, n_workers: int):
    """agentlightning's metrics of the given names, together, or None."""
    from agentlightning.utils import metrics

    if names and "prometheus" in names and n_workers > 1:
        metrics.setup_multiprocess_prometheus()
    makers: dict[str, Callable[[], metrics.MetricsBackend]] = {
        "prometheus": metrics.PrometheusMetricsBackend,
        "console": metrics.ConsoleMetricsBackend,
    }
    backends = [makers[name]() for name in dict.fromkeys(names or ())]
    return metrics.MultiMetricsBackend(backends) if len(backends) > 1 else next(iter(backends), None)


def _fail(message: str) -> int:
    print(f"python -m store: {message}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    raise SystemExit(main())
