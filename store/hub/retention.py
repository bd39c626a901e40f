"""Which finished games stay in the database, and copies of them as JSON lines."""

import asyncio
import gzip
import os
import secrets
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from store.hub.database.collections import SqlCollections
from store.hub.database.database import DatabaseUnusable
from store.hub.database.opening import DatabaseAddress, opened_collections

_SECONDS_PER_DAY = 86_400
_BATCH = 50
_UNUSED_DAYS = 7


@dataclass(frozen=True)
class RetentionRule:
    """Which finished games stay; a game is deleted when any of the limits says so.

    keep_games: the most that stay, the newest ones; None means any number.
    keep_days: how long a game stays after its end; None means for ever.
    youngest_seconds: no game is deleted sooner than this after its end, so that the algorithm has read it.
    """

    keep_games: int | None = None
    keep_days: float | None = None
    youngest_seconds: float = 3600.0


async def delete_old_games(collections: SqlCollections, rule: RetentionRule, now: float | None = None) -> int:
    """Delete the finished games that need not stay, some at a time; returns how many. Other calls go on in between.

    With them go resources without a game and workers that were not heard of for a week.
    """
    now = time.time() if now is None else now
    before = -1.0 if rule.keep_days is None else now - rule.keep_days * _SECONDS_PER_DAY
    if rule.keep_games is not None:
        before = max(before, await collections.end_of_closed(rule.keep_games) or before)
    before = min(before, now - rule.youngest_seconds)
    deleted = 0
    while games := await collections.closed_before(before, _BATCH):
        await collections.forget(games)
        deleted += len(games)
        await asyncio.sleep(0)
    await collections.forget_unused(now - _UNUSED_DAYS * _SECONDS_PER_DAY)
    return deleted


async def export(database: DatabaseAddress, output: Path, run: str | None = None) -> int:
    """Write all finished games, or those of one run, one JSON object a line; returns how many.

    A line has ``rollout``, ``attempts``, ``spans`` and ``resources``. The database may be in use by a hub.
    output: compressed if its name ends in .gz; "-" is standard output. Raises DatabaseUnusable.
    """
    if isinstance(database, Path) and not database.exists():
        raise DatabaseUnusable(f"there is no database {database}; name another with --db")
    number = 0
    async with opened_collections(database) as collections:
        with _opened(output) as lines:
            async for line in _lines(collections, run):
                lines.write(line)
                number += 1
    return number


async def _lines(collections: SqlCollections, run: str | None) -> AsyncIterator[bytes]:
    for rollout_id in await collections.closed_of_run(run):
        async with collections.atomic(mode="r"):
            parts = await collections.documents_of(rollout_id)
        if parts["rollout"] != "null":  # deleted meanwhile
            yield ("{" + ",".join(f'"{name}":{value}' for name, value in parts.items()) + "}\n").encode()


@contextmanager
def _opened(output: Path) -> Iterator[IO[bytes]]:
    """Where an export goes. A file of that name is complete, or not there, or what it was before."""
    if str(output) == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    is_device = output.exists() and not output.is_file()
    part = output if is_device else output.with_name(f"{output.name}.{secrets.token_hex(6)}.part")
    try:
        # A game has prompts, replies and names of machines: a file for its owner only. x never follows a link.
        with open(part, "wb" if is_device else "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            if output.suffix == ".gz":
                with gzip.open(file, "wb") as packed:
                    yield packed
            else:
                yield file
        if not is_device:
            part.rename(output)
    except BaseException as error:
        if not is_device:
            part.unlink(missing_ok=True)
        if isinstance(error, OSError) and not isinstance(error, DatabaseUnusable):
            raise DatabaseUnusable(f"cannot write {output}: {error.strerror or error}") from error
        raise
