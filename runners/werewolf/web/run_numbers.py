"""The metrics that ``algo`` wrote into a run's folder.

Win rates between players are in a league's ``payoff.json``, or in an evaluation of the run or its recipe: ``{"cells":
[{"wolf", "good", "games", "wolf_wins", "good_wins", "draws"}, ...]}``, optionally with ``preset`` and ``deals``.
A saved batch (``log.save_batches``) may have hundreds of megabytes: a request reads at most one, the newest first, and
again only after a change.
"""

import json
import math
import threading
from collections.abc import Iterable, Iterator, Mapping
from itertools import compress
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

from runners.werewolf.web.folders import RunFolders

_MOST_AT_ONCE = 4 * 1024 * 1024
_SAMPLES = 60
_SHOWN_BATCHES = 40
_HEADLINES = ("evaluation/win_rate", "evaluation/reward", "imitation/held_out_loss", "imitation/loss", "reward/good")
_CURVE_POINTS = 60
_LARGEST_BATCH = 512 * 1024 * 1024


class RunNumbers:
    """Caches the statistics of saved batches."""

    def __init__(self, runs: RunFolders) -> None:
        self._runs = runs
        self._read: dict[Path, tuple[tuple[int, int], dict[str, Any]]] = {}  # of saved batches: state and numbers
        self._reading = threading.Lock()

    def of(self, name: str, position: int) -> dict[str, Any]:
        """A run's metrics since byte ``position`` of its log, and its other data.

        steps: [{step, data}] from the log; ``position``: for the next request; ``more``: whether the log goes on there;
        ``restarted``: whether they are from the log's beginning, since a resumed run wrote it anew. Raises NotThere.
        """
        folder, evaluations = self._runs.run(name), self._runs.evaluations(name)
        restarted = position > 0 and not _ends_line(folder / "metrics.jsonl", position)
        start = 0 if restarted else position
        steps, position = _read_log(folder / "metrics.jsonl", start)
        summary = _json_file(folder / "summary.json") or {}
        return {
            "name": name,
            "steps": steps,
            "position": position,
            "more": position > start and position < (folder / "metrics.jsonl").stat().st_size,
            "restarted": restarted,
            "summary": {name: summary.get(name) for name in ("policy_version", "rollouts", "games", "turns")},
            "evaluations": [_slim(evaluation) for evaluation in evaluations],
            "payoff": self._payoff(name),
            "reports": list(self._runs.reports(name)),
            "people": (_json_file(folder / "people.json") or {}).get("against", []),
            "batches": self._batches(folder / "batches"),
            "samples": self._runs.samples(name, _SAMPLES),
        }

    def card(self, name: str) -> dict[str, Any]:
        """A run's last step, and the curve of its first metric in ``_HEADLINES``.

        curve: [step, value, low, high] each; low and high are None without an interval. A run with evaluations alone
        has their win rates. against: the opponents. Raises NotThere.
        """
        path = self._runs.run(name) / "metrics.jsonl"
        row = self._runs.read_once(path, lambda: _headline(path)) if path.is_file() else {"metric": None, "curve": []}
        last = next((one for one in reversed(self._runs.evaluations(name)) if one["figures"]), None)
        if not row["curve"] and last and (rate := last["figures"].get("all_games", {}).get("win_rate")):
            curve = [[last.get("step"), rate["value"], rate["low"], rate["high"]]]
            row = {"steps": None, "metric": _HEADLINES[0], "curve": curve}
        against = list(last["figures"].get("opponents", {})) if last and row["metric"] == _HEADLINES[0] else []
        return {"name": name, **row, "against": against}

    def _payoff(self, name: str) -> Any:
        """Win rates between players, of this run, else of the recipe's run with most cells."""
        if table := _json_file(self._runs.run(name) / "payoff.json"):
            return table
        found = [
            {key: evaluation["conditions"].get(key) for key in ("preset", "deals")} | {"cells": cells}
            for run in self._runs.of_recipe(name)
            for evaluation in reversed(self._runs.evaluations(run))
            if (cells := evaluation["figures"].get("cells"))
        ]
        return max(found, key=lambda one: len(one["cells"]), default=None)

    def _batches(self, folder: Path) -> list[dict[str, Any]]:
        """The newest batches in order of steps; one that was not read yet has only its name."""
        paths = sorted(folder.glob("step-*.jsonl"))[-_SHOWN_BATCHES:]
        with self._reading:  # several requests must not read the same file
            for path in reversed(paths):
                stat = path.stat()
                state = stat.st_size, stat.st_mtime_ns
                if self._read.get(path, (None,))[0] != state:
                    self._read[path] = state, _read_batch(path, stat.st_size)
                    break
        return [{"file": path.name} | self._read.get(path, (None, {}))[1] for path in paths]


def _read_log(path: Path, position: int) -> tuple[list[Mapping[str, Any]], int]:
    """Complete lines from a position on, and the position after them."""
    try:
        with path.open("rb") as file:
            file.seek(position)
            found = file.read(_MOST_AT_ONCE)
    except FileNotFoundError:
        return [], 0
    whole = found[: found.rfind(b"\n") + 1]
    steps = []
    for line in whole.splitlines():
        try:
            entry = json.loads(line, parse_constant=lambda name: None)  # NaN is not JSON
        except ValueError:
            continue  # a line that a crash truncated
        if isinstance(entry, dict) and isinstance(entry.get("data"), dict):
            steps.append({"step": entry.get("step"), "data": entry["data"]})
    return steps, position + len(whole)


def _ends_line(path: Path, position: int) -> bool:
    """Whether a line ends right before the position."""
    try:
        with path.open("rb") as file:
            file.seek(position - 1)
            return file.read(1) == b"\n"
    except FileNotFoundError:
        return False


def _headline(path: Path) -> dict[str, Any]:
    """steps, metric and curve of a run's card, from the end of its log; the first point from its beginning."""
    skipped = max(0, path.stat().st_size - _MOST_AT_ONCE)
    steps, _ = _read_log(path, skipped)
    earliest = _read_log(path, 0)[0] if skipped else []
    known = {metric for one in steps for metric, value in one["data"].items() if value is not None}
    metric = next((metric for metric in _HEADLINES if metric in known), None)
    points = [
        [
            [one["step"], *(one["data"].get(f"{metric}{end}") for end in ("", "/low", "/high"))]
            for one in part
            if one["data"].get(metric) is not None
        ]
        for part in (earliest, steps)
    ]
    curve = points[1] if points[0][:1] == points[1][:1] else points[0][:1] + points[1]
    shown = curve[:: len(curve) // _CURVE_POINTS + 1][:-1] + curve[-1:]
    return {"steps": steps[-1]["step"] if steps else None, "metric": metric, "curve": shown}


def _slim(evaluation: Mapping[str, Any]) -> dict[str, Any]:
    figures = evaluation["figures"]
    opponents = figures.get("opponents", {})
    strength = ((figures.get("strengths") or {}).get("players") or {}).get("policy")
    scores = {name: {**against["by_side"], "both": against["both_sides"]} for name, against in opponents.items()}
    kept = {name: evaluation.get(name) for name in ("label", "step", "policy_version")}
    return kept | {"strength": strength, "scores": scores, "reward": figures.get("reward")}


def _json_file(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"), parse_constant=lambda name: None)
    except FileNotFoundError:
        return None
    except ValueError:  # incomplete
        return None


def _read_batch(path: Path, size: int) -> dict[str, Any]:
    if size > _LARGEST_BATCH:
        return {"problem": "too large to show"}
    try:
        return _numbers(_rows(path))
    except (ValueError, LookupError, TypeError):  # damaged, or of another version
        return {"problem": "cannot be read"}


def _rows(path: Path) -> Iterator[Mapping[str, Any]]:
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):  # the last one may be incomplete
                yield json.loads(line, parse_constant=lambda name: None)  # NaN is None


def _numbers(rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Counts, and means over sampled tokens. ratio: of the trainer's to the sampler's probability of a token."""
    sequences = tokens = sampled = turns = zero_advantage = 0
    rewards: dict[str, list[float]] = {}
    advantages: list[float] = []
    ratios: list[float] = []
    versions: set[int] = set()
    for row in rows:
        mask = row["loss_mask"]
        sequences, tokens, sampled = sequences + 1, tokens + len(mask), sampled + sum(mask)
        turns += len(row["turn_ends"])
        versions.update(row["turn_versions"])
        if row["reward"] is not None:
            rewards.setdefault(row["side"], []).append(row["reward"])
        own = [value for value in compress(row["advantages"], mask) if value is not None]
        advantages += own
        zero_advantage += bool(own) and not any(own)
        both = compress(zip(row["trainer_logprobs"], row["logprobs"], strict=True), mask)
        ratios += [math.exp(min(a - b, 50.0)) for a, b in both if a is not None and b is not None]
    ratios.sort()

    def at(share: float) -> int:
        return int((len(ratios) - 1) * share)

    return {
        "sequences": sequences,
        "tokens": tokens,
        "sampled": sampled,
        "turns": turns,
        "versions": [min(versions), max(versions)] if versions else None,
        "rewards": {side: round(fmean(values), 4) for side, values in sorted(rewards.items())},
        "advantage": {"mean": fmean(advantages), "deviation": pstdev(advantages)} if advantages else None,
        "zero_advantage": zero_advantage,
        "ratio": {"mean": fmean(ratios), "low": ratios[at(0.01)], "high": ratios[at(0.99)]} if ratios else None,
    }
