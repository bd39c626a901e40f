"""Rewards of agents as named dimensions."""

import math
from collections.abc import Mapping, Sequence
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
    if isinstance(given, (int, float)):
        given = {"reward": given}
    if not isinstance(given, Mapping) or not given:
        raise UnusableReward(
            f"{where} returned no reward ({given!r}): return a number, a dictionary of named numbers with the "
            f"primary one first, or call agentlightning.emit_reward"
        )
    dimensions = {}
    for name, value in given.items():
        if not isinstance(value, (int, float)) or not math.isfinite(value):
            raise UnusableReward(f"{where} returned {value!r} as reward {name!r}; it must be a finite number")
        dimensions[str(name)] = float(value)
    return dimensions
