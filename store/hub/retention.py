"""Deletion of old finished rollouts, and their export as JSON lines."""

import asyncio
import gzip
import os
import secrets
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from agentlightning.types import FilterOptions, SortOptions
from pydantic_core import to_json

from store.hub.database.collections import SqlCollections
from store.hub.database.database import DatabaseUnusable
from store.hub.database.opening import DatabaseAddress, opened_store
from store.protocol import CLOSED

_SECONDS_PER_DAY = 86_400
_BATCH = 50
_UNUSED_DAYS = 7
_FINISHED: FilterOptions = {"status": {"within": sorted(CLOSED)}}
_OLDEST_FIRST: SortOptions = {"name": "end_time", "order": "asc"}


@dataclass(frozen=True)
class RetentionRule:
    """Retention of finished rollouts; one that exceeds any limit is deleted.

    keep_rollouts: number of the newest to keep; None: no limit.
    keep_days: days to keep a rollout after its end; None: no limit.
    youngest_seconds: minimum age of a deleted rollout, so that the algorithm has read it.
    """

    keep_rollouts: int | None = None
    keep_days: float | None = None
    youngest_seconds: float = 3600.0


async def delete_old_rollouts(collections: SqlCollections, rule: RetentionRule, now: float | None = None) -> int:
    """Delete old finished rollouts, in batches between which other calls proceed; returns their number.

    Also deletes resources without a rollout, and workers, after a week.
    """
    now, deleted = time.time() if now is None else now, 0
    while True:
        oldest = await collections.rollouts.query(_FINISHED, _OLDEST_FIRST, limit=_BATCH)
        excess = 0 if rule.keep_rollouts is None else oldest.total - rule.keep_rollouts
        ages = [now - (rollout.end_time or 0.0) for rollout in oldest]
        old = [
            rollout.rollout_id
            for place, (rollout, age) in enumerate(zip(oldest, ages, strict=True))
            if age >= rule.youngest_seconds
            and (place < excess or (rule.keep_days is not None and age >= rule.keep_days * _SECONDS_PER_DAY))
        ]
        if not old:
            break
        deleted += await collections.delete_rollouts(old)
        await asyncio.sleep(0)
    await collections.delete_unused(now - _UNUSED_DAYS * _SECONDS_PER_DAY)
    return deleted


async def export(database: DatabaseAddress, output: Path) -> int:
    """Write all finished rollouts, one JSON object a line; returns their number.

    A line has ``rollout``, ``attempts``, ``spans`` and ``resources``. The database may be in use by a hub.
    output: compressed if its name ends in .gz. Raises DatabaseUnusable, or another OSError.
    """
    if isinstance(database, Path) and not database.exists():
        raise DatabaseUnusable(f"database {database} does not exist: name another with --db")
    number = 0
    async with opened_store(database) as store:
        with _new_file(output) as lines:
            async for line in _lines(store.collections):
                lines.write(line)
                number += 1
    return number


async def _lines(collections: SqlCollections) -> AsyncIterator[bytes]:
    for position in await collections.rollouts.positions(_FINISHED, _OLDEST_FIRST):
        async with collections.atomic(mode="r"):
            found = await collections.rollouts.at([position], None)
            if not found:  # deleted meanwhile
                continue
            (rollout,) = found
            its: FilterOptions = {"rollout_id": {"exact": rollout.rollout_id}}
            attempts, spans = await collections.attempts.query(its), await collections.spans.query(its)
            resources = await collections.resources.get({"resources_id": {"exact": rollout.resources_id or ""}})
        parts = {"rollout": rollout, "attempts": attempts.items, "spans": spans.items, "resources": resources}
        yield to_json(parts) + b"\n"


@contextmanager
def _new_file(output: Path) -> Iterator[IO[bytes] | gzip.GzipFile]:
    """A file that replaces ``output`` when it is complete; for its owner only, since it contains prompts and names."""
    if output.exists() and not output.is_file():
        raise FileExistsError(f"{output} is a folder, a device or a pipe: name a file")
    part = output.with_name(f"{output.name}.{secrets.token_hex(6)}.part")
    try:
        with (
            open(part, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file,
            gzip.open(file, "wb") if output.suffix == ".gz" else nullcontext(file) as lines,
        ):
            yield lines
        part.rename(output)
    finally:
        part.unlink(missing_ok=True)
