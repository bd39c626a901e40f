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

from agentlightning.types import FilterOptions, SortOptions

from store.hub.database.collections import SqlCollections
from store.hub.database.database import DatabaseUnusable
from store.hub.database.opening import DatabaseAddress, opened_store
from store.hub.database.transitions import CLOSED_ROLLOUT

_SECONDS_PER_DAY = 86_400
_BATCH = 50
_UNUSED_DAYS = 7
_FINISHED: FilterOptions = {"status": {"within": sorted(CLOSED_ROLLOUT)}}
_OLDEST_FIRST: SortOptions = {"name": "end_time", "order": "asc"}


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
    """Delete the finished games that need not stay, in batches between which other calls go on; returns how many.

    With them go resources without a game and workers that were not heard of for a week.
    """
    now, deleted = time.time() if now is None else now, 0
    while True:
        oldest = await collections.rollouts.query(_FINISHED, _OLDEST_FIRST, limit=_BATCH)
        excess = 0 if rule.keep_games is None else oldest.total - rule.keep_games
        ages = [now - (rollout.end_time or 0.0) for rollout in oldest]
        old = [
            rollout.rollout_id
            for place, (rollout, age) in enumerate(zip(oldest, ages, strict=True))
            if age >= rule.youngest_seconds
            and (place < excess or (rule.keep_days is not None and age >= rule.keep_days * _SECONDS_PER_DAY))
        ]
        if not old:
            break
        await collections.forget(old)
        deleted += len(old)
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
    async with opened_store(database) as store:
        with _opened(output) as lines:
            async for line in _lines(store.collections, run):
                lines.write(line)
                number += 1
    return number


async def _lines(collections: SqlCollections, run: str | None) -> AsyncIterator[bytes]:
    for position in await collections.rollouts.positions(_FINISHED, _OLDEST_FIRST):
        async with collections.atomic(mode="r"):
            found = await collections.rollouts.at([position], None)
            if not found or (run is not None and (found[0].metadata or {}).get("run") != run):
                continue  # the first where it was deleted meanwhile
            (rollout,) = found
            its: FilterOptions = {"rollout_id": {"exact": rollout.rollout_id}}
            attempts, spans = await collections.attempts.query(its), await collections.spans.query(its)
            resources = await collections.resources.get({"resources_id": {"exact": rollout.resources_id or ""}})
        parts = {
            "rollout": rollout.model_dump_json(),
            "attempts": f"[{','.join(one.model_dump_json() for one in attempts)}]",
            "spans": f"[{','.join(one.model_dump_json() for one in spans)}]",
            "resources": "null" if resources is None else resources.model_dump_json(),
        }
        yield ("{" + ",".join(f'"{name}":{value}' for name, value in parts.items()) + "}\n").encode()


@contextmanager
def _opened(output: Path) -> Iterator[IO[bytes] | gzip.GzipFile]:
    """Where an export goes. A file of that name is complete, or does not exist, or is what it was before."""
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
