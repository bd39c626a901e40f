"""``python -m store``: run the hub; show its status; export games."""

# Each command imports what it needs: agentlightning takes seconds, which --help and status do not need.
import argparse
import asyncio
import os
import sqlite3
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from store.addresses import problem_with_base_url
from store.errors import OneLineError
from store.printable import printable
from store.program import number, port, run_program

DEFAULT_DATABASE = Path("runs/hub.sqlite3")
EXAMPLE = "postgresql://hub@db.example:5432/games"

_DESCRIPTION = """\
The hub between the algorithm and the runners: a durable `agl store`. Same protocol, same options; every acknowledged
request is in one SQLite file or in a PostgreSQL database, and survives a crash, a restart and `kill -9`.
"""

_EPILOG = """\
other commands (each with its own --help):
  status    rollouts, machines, speed and errors of a running hub on one screen
  export    copy finished rollouts to a file of JSON lines

examples:
  on this machine        python -m store
  in a network           openssl rand -hex 32 > token; chmod 600 token
                         python -m store --host 0.0.0.0 --token-file token
                         (runners, algorithm and status: export AGL_TOKEN=$(cat token))
  with TLS               add --certificate hub.pem --key hub.key; clients use https:// addresses and, unless a public
                         authority signed the certificate, SSL_CERT_FILE=hub.pem
  for months             python -m store --keep-days 14
  thousands of runners   export PGPASSWORD=...   (or a password file: PGPASSFILE, ~/.pgpass)
                         python -m store --db postgresql://hub@db.example/games --workers 4
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command, by default the hub; returns the exit status."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    command = _COMMANDS.get(arguments[0]) if arguments else None
    try:
        if command is None:
            _serve(arguments)
        else:
            command(arguments[1:])
        sys.stdout.flush()
    except BrokenPipeError:  # see ``status_of``
        raise
    except (OneLineError, OSError, sqlite3.Error) as error:
        print(f"python -m store: {printable(str(error))}", file=sys.stderr)
        _drop_output()
        return 1
    return 0


def _drop_output() -> None:
    """Unprinted output would fail again, with a traceback, when the interpreter ends."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _require_hub(parser: argparse.ArgumentParser) -> None:
    if find_spec("agentlightning") is None:
        parser.error("a hub needs agentlightning: pip install '.[hub]'")


def _serve(arguments: Sequence[str]) -> None:
    parser = _serve_parser()
    options = parser.parse_args(arguments)
    on_postgres = not isinstance(options.db, Path)
    keeps_all = options.keep_rollouts is None and options.keep_days is None
    in_memory = options.backend == "memory"
    keeps_some = options.db is not DEFAULT_DATABASE or options.fsync or not keeps_all
    _require_hub(parser)
    for wrong, reason in (
        (on_postgres and options.backend, f"--backend {options.backend} cannot be combined with a --db of PostgreSQL"),
        (options.workers < 1, "--workers must be at least 1"),
        (options.workers > 1 and not on_postgres, f"--workers above 1 needs PostgreSQL, such as --db {EXAMPLE}"),
        (options.fsync and on_postgres, "--fsync is for SQLite only: PostgreSQL has synchronous_commit"),
        ((options.certificate is None) != (options.key is None), "--certificate and --key must be given together"),
        (in_memory and keeps_some, "--backend memory excludes --db, --fsync, --keep-rollouts and --keep-days"),
    ):
        if wrong:
            parser.error(reason)

    from agentlightning import setup_logging

    from store.auth import read_token
    from store.hub.retention import RetentionRule
    from store.hub.server import HubSettings, run
    from store.hub.workers import run_workers

    setup_logging(options.log_level, color=sys.stdout.isatty(), apply_to=["store", "uvicorn"])
    settings = HubSettings(
        host=options.host,
        port=options.port,
        database=None if in_memory else options.db,
        fsync=options.fsync,
        token=read_token(options.token_file),
        no_auth=options.no_auth,
        public_names=options.public_names,
        largest_request_bytes=int(options.max_request_mb * 1024 * 1024),
        cors_origins=options.cors_origins,
        certificate=options.certificate,
        key=options.key,
        n_workers=options.workers,
        tracker=_tracker(options.tracker, options.workers),
        retention=None if keeps_all else RetentionRule(options.keep_rollouts, options.keep_days),
    )
    if options.workers > 1:
        run_workers(settings)
    else:
        asyncio.run(run(settings))


def _status(arguments: Sequence[str]) -> None:
    from store.auth import read_token
    from store.status import show

    parser = argparse.ArgumentParser(
        "python -m store status",
        description="Status of a hub: rollouts by state and per minute, runners by machine, and the latest errors by "
        "kind. Works with `agl store`, too.",
    )
    parser.add_argument("--url", default="http://127.0.0.1:4747", help="address of the hub (%(default)s)")
    parser.add_argument("--watch", action="store_true", help="repeat until Ctrl-C")
    parser.add_argument("--json", action="store_true", help="one line of JSON instead of a screen")
    _add_token_file(parser, "the hub's token")
    options = parser.parse_args(arguments)
    if problem := problem_with_base_url(options.url):
        parser.error(f"--url {problem}")
    asyncio.run(show(options.url, read_token(options.token_file), watch=options.watch, as_json=options.json))


def _export(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(
        "python -m store export",
        description="Copy finished rollouts to a file, one JSON object a line: rollout, attempts, spans, resources. "
        "A hub may use the database meanwhile.",
    )
    _add_database(parser)
    parser.add_argument("output", type=Path, metavar="FILE", help="compressed if its name ends in .gz")
    options = parser.parse_args(arguments)
    _require_hub(parser)
    from store.hub.retention import export

    count = asyncio.run(export(options.db, options.output))
    print(f"{count} rollouts exported")


_COMMANDS: dict[str, Callable[[Sequence[str]], None]] = {"status": _status, "export": _export}


def _serve_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m store",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--host", default="127.0.0.1", help="address to listen on (%(default)s: this machine only)")
    add("--port", type=port, default=4747, help="port to listen on (%(default)s)")
    _add_database(parser)
    add("--fsync", action="store_true", help="flush every change to disk: slower, but survives a power cut")
    add = parser.add_argument_group(
        "retention of finished rollouts (default: all)",
        "Finished rollouts beyond these limits are deleted, at the earliest an hour after they end\n"
        "(`export` copies them first); published policies that no rollout has, and runners, after a\n"
        "week. Keep more than a run has in flight, and for longer than a run may pause: a rollout\n"
        "deleted before the algorithm has read it is played again.",
    ).add_argument
    add("--keep-rollouts", type=number(int, 0), metavar="N", help="the newest N")
    add("--keep-days", type=number(float, 0.001), metavar="D", help="those of the last D days")
    access = parser.add_argument_group("access")
    _add_token_file(
        access, "file with the token that every request must carry; without one, any local process has access"
    )
    add = access.add_argument
    add("--no-auth", action="store_true", help="allow requests without a token although other machines reach --host")
    add(
        "--public-name",
        dest="public_names",
        action="append",
        default=[],
        metavar="NAME",
        help="host name of the hub for its clients, such as a proxy's; may be repeated. Without a token, the hub only "
        "accepts IP addresses, localhost, this machine's name and these; with a token, any name unless some are given",
    )
    add("--certificate", type=Path, metavar="PEM", help="serve https with this certificate chain")
    add("--key", type=Path, metavar="PEM", help="private key of the certificate")
    add(
        "--max-request-mb",
        type=number(float, 0.001),
        default=64,
        metavar="MB",
        help="largest request, decompressed (%(default)s); a quarter of it for JSON",
    )
    add(
        "--cors-origin",
        dest="cors_origins",
        action="append",
        default=[],
        metavar="ORIGIN",
        help="web origin that may call the hub; may be repeated, '*' for all",
    )
    add = parser.add_argument_group("as in `agl store`").add_argument
    add("--log-level", default="INFO", choices=["DEBUG", "INFO", "WARNING", "ERROR"], help="(%(default)s)")
    add("--tracker", nargs="+", choices=["prometheus", "console"], help="measure calls and times")
    add(
        "--backend",
        choices=["sqlite", "memory"],
        help="where rollouts are stored; memory: lost when the hub stops (default: sqlite)",
    )
    add(
        "--workers",
        "--n-workers",
        type=number(int, 0),
        default=1,
        metavar="N",
        help="worker processes behind the port, with a PostgreSQL database (%(default)s)",
    )
    return parser


def _add_token_file(parser: Any, purpose: str) -> None:
    parser.add_argument(
        "--token-file",
        type=Path,
        metavar="FILE",
        help=f"{purpose} (default: AGL_TOKEN, or the file in AGL_TOKEN_FILE)",
    )


def _add_database(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--db",
        type=_database,
        default=DEFAULT_DATABASE,
        metavar="DATABASE",
        help="SQLite file, created if missing (%(default)s), or address of a PostgreSQL database; put its password "
        "into PGPASSWORD or a password file",
    )


def _database(text: str) -> Any:
    """A path, or an sqlalchemy.URL. An error does not repeat the text, which may hold a password."""
    if "://" not in text:
        return Path(text)
    import sqlalchemy as sa
    from sqlalchemy.exc import ArgumentError

    try:
        url = sa.make_url(text)
        if url.drivername in ("postgresql", "postgres") and "@" not in (url.host or "") and (url.port or 0) < 2**16:
            return url.set(drivername="postgresql")
    except (ValueError, ArgumentError):
        pass
    raise argparse.ArgumentTypeError(
        f"not the address of a PostgreSQL database, such as {EXAMPLE}: escape special characters of a password, as in "
        "%40 for @, or put it into PGPASSWORD or a password file (PGPASSFILE, ~/.pgpass)"
    )


def _tracker(names: Sequence[str] | None, n_workers: int):
    """agentlightning's metrics backends of the given names as one; None without names."""
    from agentlightning.utils import metrics

    if names and "prometheus" in names and n_workers > 1:
        metrics.setup_multiprocess_prometheus()
    makers = {"prometheus": metrics.PrometheusMetricsBackend, "console": metrics.ConsoleMetricsBackend}
    backends = [makers[name]() for name in dict.fromkeys(names or ())]
    return metrics.MultiMetricsBackend(backends) if len(backends) > 1 else next(iter(backends), None)


if __name__ == "__main__":
    run_program(main)
