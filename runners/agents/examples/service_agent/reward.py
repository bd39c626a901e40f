"""The reward: 1 for the right number after ###, as answers of gsm8k end with it; else 0."""

import re
from collections.abc import Mapping
from typing import Any

_AFTER_MARK = re.compile(r"###\s*\$?(-?\d[\d,]*(?:\.\d+)?)")


def reward(task: Mapping[str, Any], answer: Mapping[str, Any]) -> float:
    """Judge the service's answer to a task (``question`` and ``answer``, as a row of gsm8k)."""
    said, right = number_after_mark(answer.get("text") or ""), number_after_mark(task["answer"])
    return float(said is not None and said == right)


def number_after_mark(text: str) -> float | None:
    """The number after the last ###; None where there is none."""
    found = _AFTER_MARK.findall(text)
    return float(found[-1].replace(",", "")) if found else None
