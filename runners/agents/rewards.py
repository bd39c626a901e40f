"""Rewards of agents as named dimensions."""

import math
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

from runners.errors import CannotPlay


class UnusableReward(CannotPlay):
    """An agent or its reward function returned an invalid reward; the message names valid ones."""


def dimensions_of(
    given: Any, emitted: Sequence[Mapping[str, float]] = (), where: str = "the agent"
) -> dict[str, float]:
    """Rewards by name, the primary one first: from a number, named numbers, or the last emitted ones.

    Raises UnusableReward.
    """
    if given is None and emitted:
        return dict(emitted[-1])
    if isinstance(given, Real) or hasattr(given, "item"):
        given = {"reward": given}
    if not isinstance(given, Mapping) or not given:
        raise UnusableReward(
            f"{where} returned no reward ({given!r}): return a number, a dictionary of named numbers with the "
            f"primary one first, or call agentlightning.emit_reward"
        )
    dimensions = {}
    for name, value in given.items():
        number = _number(value)
        if not math.isfinite(number):
            raise UnusableReward(f"{where} returned {value!r} as reward {name!r}; it must be a finite number")
        dimensions[str(name)] = number
    return dimensions


def _number(value: Any) -> float:
    """A number as a float, also one of NumPy or torch; NaN for anything else, and for what a float cannot hold."""
    try:
        value = value.item() if hasattr(value, "item") else value
        return float(value) if isinstance(value, Real) else math.nan
    except (TypeError, ValueError, RuntimeError, OverflowError):  # several numbers, or one that is too large
        return math.nan
