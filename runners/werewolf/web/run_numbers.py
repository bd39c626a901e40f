"""A run at a glance: the numbers that ``algo`` wrote into the run's folder. The files are read, nothing is kept.

Who beats whom is in ``payoff.json`` of a league, or in the last evaluation of the run. Both say ``{"cells": [{"wolf",
"good", "games", "wolf_wins", "good_wins", "draws"}, ...]}``, and may say ``preset`` and ``deals`` beside it.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from runners.werewolf.web.batch_numbers import BatchNumbers
from runners.werewolf.web.folders import RunFolders

_MOST_AT_ONCE = 4 * 1024 * 1024
_SAMPLES = 60


def run_data(runs: RunFolders, batches: BatchNumbers, name: str, position: int) -> dict[str, Any]:
    """What is new of a run's numbers since byte ``position`` of its log, and everything else of the run as it stands.

    batches: remembers what saved batches hold. steps: [{step, data}] from the log; ``position`` is where the next
    question goes on. Raises NotThere.
    """
    folder, evaluations = runs.run(name), runs.evaluations(name)
    steps, position = _read_log(folder / "metrics.jsonl", position)
    return {
        "name": name,
        "steps": steps,
        "position": position,
        "summary": _summary(folder / "summary.json"),
        "evaluations": [_slim(evaluation) for evaluation in evaluations],
        "payoff": _payoff(folder, evaluations),
        "people": (_json_file(folder / "people.json") or {}).get("against", []),
        "batches": batches.of(folder / "batches"),
        "samples": runs.samples(name)[:_SAMPLES],
    }


def _payoff(folder: Path, evaluations: Sequence[Mapping[str, Any]]) -> Any:
    table = _json_file(folder / "payoff.json")
    if isinstance(table, dict) and isinstance(table.get("cells"), list):
        return table
    ended = [evaluation for evaluation in evaluations if evaluation["figures"].get("cells")]
    if not ended:
        return None
    return {name: ended[-1]["terms"].get(name) for name in ("preset", "deals")} | {
        "cells": ended[-1]["figures"]["cells"]
    }


def _read_log(path: Path, position: int) -> tuple[list[Mapping[str, Any]], int]:
    """Whole lines from a position on; a log that is shorter was begun anew."""
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        return [], 0
    if position > size:
        position = 0
    with path.open("rb") as file:
        file.seek(position)
        found = file.read(_MOST_AT_ONCE)
    whole = found[: found.rfind(b"\n") + 1]
    steps = []
    for line in whole.splitlines():
        try:
            entry = json.loads(line, parse_constant=lambda name: None)  # NaN is no JSON
        except ValueError:
            continue  # a line that a crash cut in two; the next one is whole
        if isinstance(entry, dict) and isinstance(entry.get("data"), dict):
            steps.append({"step": entry.get("step"), "data": entry["data"]})
    return steps, position + len(whole)


def _summary(path: Path) -> Any:
    summary = _json_file(path)
    if isinstance(summary, dict):
        return {name: value for name, value in summary.items() if name not in ("step_metrics", "before", "files")}
    return None


def _slim(evaluation: Mapping[str, Any]) -> dict[str, Any]:
    figures = evaluation["figures"]
    opponents = figures.get("opponents", {})
    strength = ((figures.get("strengths") or {}).get("players") or {}).get("policy")
    scores = {name: {**against["by_side"], "both": against["both_sides"]} for name, against in opponents.items()}
    kept = {name: evaluation.get(name) for name in ("label", "player", "policy_version")}
    return kept | {"opponents": evaluation.get("planned"), "strength": strength, "scores": scores}


def _json_file(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"), parse_constant=lambda name: None)
    except FileNotFoundError:
        return None
    except ValueError:  # being written right now; the next look finds it whole
        return None
