"""The reward: 1 for the right number after ###, as in answers of gsm8k; else 0."""

import re
from collections.abc import Mapping
from typing import Any

_AFTER_MARK = re.compile(r"###\s*\$?(-?\d[\d,]*(?:\.\d+)?)")


def reward(task: Mapping[str, Any], answer: Mapping[str, Any]) -> float:
    """The reward of an answer to a task (``question`` and ``answer``, as a row of gsm8k)."""
    said, right = number_after_mark(answer.get("text") or ""), number_after_mark(task["answer"])
    return float(said is not None and said == right)


def number_after_mark(text: str) -> float | None:
    """The number after the last ###, or None."""
    found = _AFTER_MARK.findall(text)
    return float(found[-1].replace(",", "")) if found else None
