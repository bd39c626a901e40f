"""Archived games back into a database. What an archive says is checked before it is believed."""

import gzip
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from agentlightning import Attempt, ResourcesUpdate, Rollout, Span

from store.errors import OneLineError
from store.hub.retention import FORMAT
from store.printable import printable
from store.sql.collections import SqlCollections
from store.sql.opening import DatabaseAddress, opened_collections
from store.sql.steps import check_sequence_ids
from store.sql.transitions import CLOSED_ROLLOUT

_LONGEST_REASON = 300
_LONGEST_LINE_BYTES = 256 * 1024 * 1024
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,99}")
"""What an id of a rollout or attempt may be: it becomes part of addresses and of the names of archives."""


class UnreadableArchive(OneLineError, ValueError):
    """A line of an archive is damaged or from a newer version; the message names file and line."""


async def restore(database: DatabaseAddress, files: Iterable[Path]) -> tuple[int, int]:
    """Put archived games back; returns (games restored, games that were there already).

    A file is made if it is not there. The database may be in use by a hub. Raises UnreadableArchive; the games before a
    damaged line are restored then, and doing it again is harmless.
    """
    async with opened_collections(database) as collections:
        restored = total = 0
        for file in files:
            for where, line in _lines(file):
                try:
                    restored += await _restore_game(collections, json.loads(line))
                except (KeyError, TypeError, ValueError, RecursionError) as error:
                    reason = printable(f"{type(error).__name__}: {error}"[:_LONGEST_REASON])
                    raise UnreadableArchive(f"{where}: {reason}") from error
                total += 1
    return restored, total - restored


def _lines(file: Path) -> Iterator[tuple[str, bytes]]:
    """(where, line) of an archive or an export, compressed or not."""
    number = 0
    try:
        with gzip.open(file, "rb") if file.suffix == ".gz" else file.open("rb") as lines:
            while line := lines.readline(_LONGEST_LINE_BYTES + 1):
                if len(line) > _LONGEST_LINE_BYTES:
                    raise EOFError(f"line {number + 1} is longer than {_LONGEST_LINE_BYTES} bytes")
                number += 1
                yield f"{file}, line {number}", line
    except (OSError, EOFError, zlib.error) as error:
        raise UnreadableArchive(f"{file}, after line {number}: {error}") from error


async def _restore_game(collections: SqlCollections, game: Mapping[str, Any]) -> bool:
    """Put one game back, whole or not at all; False if it was there. Raises ValueError, KeyError or TypeError."""
    if game["format"] != FORMAT:
        raise ValueError(f"format {game['format']!r} is not known to this version")
    rollout = Rollout.model_validate(game["rollout"])
    attempts = [Attempt.model_validate(attempt) for attempt in game["attempts"]]
    spans = [Span.model_validate(span) for span in game["spans"]]
    for kind, identity in [("rollout", rollout.rollout_id), *(("attempt", one.attempt_id) for one in attempts)]:
        if not _ID.fullmatch(identity):
            raise ValueError(f"{identity!r} cannot be the id of a {kind}")
    if rollout.status not in CLOSED_ROLLOUT:
        raise ValueError(f"rollout {rollout.rollout_id} is not finished ({rollout.status})")
    known = {(rollout.rollout_id, attempt.attempt_id) for attempt in attempts}
    strangers = {(part.rollout_id, part.attempt_id) for part in (*attempts, *spans)} - known
    if strangers:
        raise ValueError(f"rollout {rollout.rollout_id} comes with parts of others: {sorted(strangers)}")
    check_sequence_ids([game["span_sequence_id"], *(span.sequence_id for span in spans)])
    async with collections.atomic():
        if game["resources"] is not None:
            await collections.resources.insert_new([ResourcesUpdate.model_validate(game["resources"])])
        added = await collections.rollouts.insert_new([rollout])
        await collections.attempts.insert_new(attempts)
        await collections.spans.insert_new(spans)
        await collections.span_sequence_ids.chmax(rollout.rollout_id, game["span_sequence_id"])
        for key in game["idempotency_keys"]:
            if not await collections.idempotency_keys.has(key):
                await collections.idempotency_keys.set(key, rollout.rollout_id)
    return bool(added)
