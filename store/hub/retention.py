"""Old games out of the database into compressed archives, and copies of them for other programs.

A line of an archive is one finished game as JSON: ``rollout``, ``attempts``, ``spans``, ``resources`` and what the hub
keeps of it besides; ``store.hub.restoring`` reads it again. All of this works on a database that a hub is using: it
reads one game at a time, and a game's removal is one short transaction.
"""

import gzip
import json
import logging
import os
import secrets
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO

from store.sql.collections import READ_BY_QUERIES
from store.sql.database import DatabaseUnusable
from store.sql.dialects import CLOSED
from store.sql.opening import DatabaseAddress
from store.sql.sessions import Session, session_of
from store.sql.sqlite import holding
from store.sql.tables import extracted

logger = logging.getLogger(__name__)

FORMAT = 1
"""Version of an archive's lines; a newer one is refused."""

_SECONDS_PER_DAY = 86_400
_GAMES_PER_FILE = 200
_WORKER_DAYS = 7


class AlreadyArchiving(DatabaseUnusable):
    """Another process archives games of the same database."""


@dataclass(frozen=True)
class RetentionRule:
    """Which finished games stay in the database; a game goes when any of the limits says so.

    keep_games: the most that stay, the newest ones; None means any number.
    keep_days: how long a game stays after its end; None means for ever.
    youngest_seconds: no game goes sooner than this after its end, so that the algorithm has read it.
    """

    keep_games: int | None = None
    keep_days: float | None = None
    youngest_seconds: float = 3600.0


@dataclass
class ArchiveReport:
    """What an archive run has done.

    left: games that it left for the next run, because something was added to them meanwhile.
    """

    games: int = 0
    files: int = 0
    left: int = 0


def archive(
    database: DatabaseAddress,
    folder: Path,
    rule: RetentionRule,
    *,
    now: float | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> ArchiveReport:
    """Move the finished games that need not stay into files in ``folder``.

    A file is complete on disk before any of its games is removed, so that a crash at any moment loses nothing; at
    worst a game is in two files, which ``restore`` does not mind. Raises DatabaseUnusable (AlreadyArchiving if another
    does), sqlite3.Error, DatabaseAway or OSError. Not from within a running event loop if it is a PostgreSQL database.
    """
    report = ArchiveReport()
    now = time.time() if now is None else now
    with closing(session_of(database)) as connection, _only_archiver(connection, database, folder):
        games = iter(_games_to_archive(connection, rule, now))
        while not should_stop() and (batch := list(islice(games, _GAMES_PER_FILE))):
            archived = _write_file(connection, folder, batch)
            report.files += 1
            for game in archived:
                removed = _remove(connection, game)
                report.games += removed
                report.left += not removed
            _remove_unused_resources(connection, {game.resources_id for game in archived}, now - rule.youngest_seconds)
        _remove_departed_workers(connection, now - _WORKER_DAYS * _SECONDS_PER_DAY)
    return report


def shrink(database: DatabaseAddress) -> None:
    """Give the space of removed games back to the disk; otherwise new games use it."""
    with closing(session_of(database)) as connection:
        connection.shrink()


def export(database: DatabaseAddress, output: Path, run: str | None = None) -> int:
    """Write all finished games, or those of one run, as lines in the archives' format; returns how many.

    output: compressed if its name ends in .gz; "-" is standard output. Raises DatabaseUnusable.
    """
    condition, parameters = "TRUE", [] if run is None else [run]
    with closing(session_of(database)) as connection, _opened(output) as lines:
        if run is not None:
            condition = f"{extracted('run', READ_BY_QUERIES, 'rollouts', connection.dialect)} = ?"
        rows = connection.rows(
            f"SELECT rollout_id FROM rollouts WHERE status IN {CLOSED} AND {condition} ORDER BY end_time", parameters
        )
        for (rollout_id,) in rows:
            line, _ = _read_game(connection, rollout_id)
            lines.write(line)
    return len(rows)


def default_folder(database: DatabaseAddress) -> Path:
    """Where a database's archives go unless something else is said: beside the file, or to ``runs``."""
    return database.with_suffix(".archive") if isinstance(database, Path) else Path("runs/hub.archive")


@contextmanager
def _opened(output: Path) -> Iterator[IO[bytes]]:
    """Where an export goes. A file of that name is complete, or not there, or what it was before."""
    if str(output) == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
    elif output.exists() and not output.is_file():  # a device or a pipe
        with _written(output), output.open("wb") as file:
            yield file
    else:
        part = output.with_name(f"{output.name}.{secrets.token_hex(6)}.part")
        with _written(output, part), _private_file(part, "xb") as file:  # x: never through a symbolic link
            if output.suffix == ".gz":
                with gzip.open(file, "wb") as packed:
                    yield packed
            else:
                yield file
        part.rename(output)


@contextmanager
def _written(output: Path, part: Path | None = None) -> Iterator[None]:
    """Whatever keeps the block from writing is told as one line, and leaves nothing of ``part`` behind."""
    try:
        yield
    except BaseException as error:
        if part is not None:
            part.unlink(missing_ok=True)
        if isinstance(error, OSError) and not isinstance(error, DatabaseUnusable):
            raise DatabaseUnusable(f"cannot write {output}: {error.strerror or error}") from error
        raise


def _private_file(path: Path, mode: str) -> IO[bytes]:
    """A file for its owner only: a game tells the prompts, the replies and the names of machines."""
    return open(path, mode, opener=lambda name, flags: os.open(name, flags, 0o600))


@contextmanager
def _only_archiver(connection: Session, database: DatabaseAddress, folder: Path) -> Iterator[None]:
    if not connection.be_the_only("archive"):
        raise AlreadyArchiving(f"games of {database} are being archived already")
    with holding(folder / ".lock", f"games are being archived to {folder} already"):
        for part in folder.glob("*.part"):  # left by one that was killed; its games are still in the database
            part.unlink()
        yield


def _games_to_archive(connection: Session, rule: RetentionRule, now: float) -> Sequence[str]:
    finished = connection.rows(
        f"SELECT rollout_id, end_time FROM rollouts WHERE status IN {CLOSED} ORDER BY end_time DESC, position DESC"
    )
    oldest = -1.0 if rule.keep_days is None else now - rule.keep_days * _SECONDS_PER_DAY
    most = len(finished) if rule.keep_games is None else rule.keep_games
    return [
        rollout_id
        for rank, (rollout_id, end_time) in reversed(list(enumerate(finished)))
        if (rank >= most or end_time < oldest) and end_time <= now - rule.youngest_seconds
    ]


@dataclass(frozen=True)
class _ArchivedGame:
    """A game as it was archived: what shows whether something was added to it since."""

    rollout_id: str
    attempts: int
    spans: int
    resources_id: str | None


def _write_file(connection: Session, folder: Path, rollout_ids: Sequence[str]) -> list[_ArchivedGame]:
    """Write games to a file that is complete, and on the disk, once it has its name."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    final = folder / f"games-{stamp}-{secrets.token_hex(6)}.jsonl.gz"
    part = final.with_suffix(".part")
    archived = []
    with _written(final, part), _private_file(part, "xb") as file:
        with gzip.open(file, "wb") as packed:
            for rollout_id in rollout_ids:
                line, game = _read_game(connection, rollout_id)
                packed.write(line)
                archived.append(game)
        file.flush()
        os.fsync(file.fileno())
    part.rename(final)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return archived


def _read_game(connection: Session, rollout_id: str) -> tuple[bytes, _ArchivedGame]:
    """A game as a line, put together from the stored JSON as it is."""

    def documents(table: str, order: str) -> list[str]:
        sql = f"SELECT document FROM {table} WHERE rollout_id = ? ORDER BY {order}"
        return [document for (document,) in connection.rows(sql, [rollout_id])]

    with connection.transaction(write=False):
        (rollout,) = documents("rollouts", "position")
        attempts = documents("attempts", "sequence_id")
        spans = documents("spans", "position")
        ((resources_id, resources),) = connection.rows(
            "SELECT rollouts.resources_id, resources.document FROM rollouts LEFT JOIN resources USING (resources_id) "
            "WHERE rollout_id = ?",
            [rollout_id],
        )
        keys = connection.rows("SELECT key FROM idempotency_keys WHERE value = ?", [rollout_id])
        sequence = connection.rows("SELECT value FROM span_sequence_ids WHERE key = ?", [rollout_id])
    parts = {
        "format": str(FORMAT),
        "rollout": rollout,
        "attempts": f"[{','.join(attempts)}]",
        "spans": f"[{','.join(spans)}]",
        "span_sequence_id": str(sequence[0][0]) if sequence else "0",
        "resources": resources or "null",
        "idempotency_keys": json.dumps([key for (key,) in keys]),
    }
    line = "{" + ",".join(f'"{name}":{value}' for name, value in parts.items()) + "}\n"
    return line.encode(), _ArchivedGame(rollout_id, len(attempts), len(spans), resources_id)


def _remove(connection: Session, game: _ArchivedGame) -> bool:
    """Remove a game, unless something was added to it after it was archived."""
    with connection.transaction(write=True):
        # Who adds to a game locks it first.
        connection.rows(
            f"SELECT 1 FROM rollouts WHERE rollout_id = ?{connection.dialect.for_update}", [game.rollout_id]
        )
        now = [
            connection.rows(f"SELECT COUNT(*) FROM {table} WHERE rollout_id = ?", [game.rollout_id])[0][0]
            for table in ("attempts", "spans")
        ]
        if now != [game.attempts, game.spans]:
            return False
        for table, column in (
            ("spans", "rollout_id"),
            ("attempts", "rollout_id"),
            ("rollouts", "rollout_id"),
            ("span_sequence_ids", "key"),
            ("idempotency_keys", "value"),
            ("rollout_queue", "item"),
        ):
            connection.change(f"DELETE FROM {table} WHERE {column} = ?", [game.rollout_id])
    return True


def _remove_unused_resources(connection: Session, resources_ids: set[str | None], before: float) -> None:
    """Remove the archived games' resources if no game has them any more; each of the games took a copy along."""
    with connection.transaction(write=True):
        connection.change(
            f"DELETE FROM resources WHERE {connection.dialect.among('resources_id')} AND update_time < ? "
            "AND resources_id NOT IN (SELECT resources_id FROM rollouts WHERE resources_id IS NOT NULL) "
            "AND resources_id NOT IN (SELECT value FROM latest)",
            [connection.dialect.listed(sorted(resources_ids - {None})), before],
        )


def _remove_departed_workers(connection: Session, before: float) -> None:
    times = ("last_heartbeat_time", "last_dequeue_time", "last_busy_time", "last_idle_time")
    latest = connection.dialect.greatest(*(f"COALESCE({time}, 0)" for time in times))
    with connection.transaction(write=True):
        connection.change(f"DELETE FROM workers WHERE {latest} < ?", [before])
