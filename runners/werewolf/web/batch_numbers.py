"""What a run's saved training batches look like, one line of numbers for each (``log.save_batches``).

A batch may be hundreds of megabytes: each file is read once, one file for each question, the newest first, and again
only when it has changed.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

_SHOWN = 40
_LARGEST = 512 * 1024 * 1024
_Stamp = tuple[int, int]


class BatchNumbers:
    """Remembers what it has read, by file."""

    def __init__(self) -> None:
        self._read: dict[Path, tuple[_Stamp, dict[str, Any]]] = {}

    def of(self, folder: Path) -> list[dict[str, Any]]:
        """The newest batches of a folder in the order of their steps; one that was not read yet is a name alone."""
        paths = sorted(folder.glob("step-*.jsonl"))[-_SHOWN:]
        for path in reversed(paths):
            status = path.stat()
            stamp = (status.st_size, status.st_mtime_ns)
            if self._read.get(path, (None,))[0] != stamp:
                small = status.st_size <= _LARGEST
                self._read[path] = stamp, _numbers(_rows(path)) if small else {"problem": "too large to be read here"}
                break
        return [{"file": path.name} | (self._read[path][1] if path in self._read else {}) for path in paths]


def _rows(path: Path) -> Iterator[Mapping[str, Any]]:
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):  # the last one may be half written
                yield json.loads(line, parse_constant=lambda name: None)


def _numbers(rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Counts, and means over what was sampled. What a row does not say, as in batches of earlier versions, is left out.

    ratio: of the trainer's probability of a token to the sampler's.
    """
    sequences = tokens = sampled = turns = silent = 0
    rewards: dict[str, list[float]] = {}
    advantages: list[float] = []
    ratios: list[float] = []
    versions: set[int] = set()
    for row in rows:
        mask = row["loss_mask"]
        sequences, tokens, sampled = sequences + 1, tokens + len(mask), sampled + sum(mask)
        turns += len(row["turn_ends"])
        versions.update(row["turn_versions"])
        if _is_number(row.get("reward")):
            rewards.setdefault(str(row.get("side", "")), []).append(row["reward"])
        given = row.get("advantages") or ()
        own = [value for value, is_own in zip(given, mask, strict=False) if is_own and _is_number(value)]
        advantages += own
        silent += bool(own) and not any(own)
        both = zip(row.get("trainer_logprobs") or (), row["logprobs"], mask, strict=False)
        ratios += [math.exp(min(a - b, 50.0)) for a, b, one in both if one and _is_number(a) and _is_number(b)]
    ratios.sort()
    return {
        "sequences": sequences,
        "tokens": tokens,
        "sampled": sampled,
        "turns": turns,
        "versions": [min(versions), max(versions)] if versions else None,
        "rewards": {side: round(fmean(values), 4) for side, values in sorted(rewards.items())},
        "advantage": _spread(advantages),
        "silent": silent,
        "ratio": None
        if not ratios
        else {
            "mean": round(fmean(ratios), 5),
            "low": round(ratios[int(len(ratios) * 0.01)], 5),
            "high": round(ratios[min(int(len(ratios) * 0.99), len(ratios) - 1)], 5),
        },
    }


def _spread(values: list[float]) -> dict[str, float] | None:
    if not values:
        return None
    return {"mean": round(fmean(values), 5), "deviation": round(pstdev(values), 5), "largest": max(map(abs, values))}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
