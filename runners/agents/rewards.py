"""What agents give as rewards, as named dimensions."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from runners.errors import CannotPlay


class UnusableReward(CannotPlay):
    """What an agent, or the function that judges it, gave is no reward; the message says what is."""


def dimensions_of(
    given: Any, emitted: Sequence[Mapping[str, float]] = (), where: str = "the agent"
) -> dict[str, float]:
    """Rewards by name, the primary one first: of a number, of named numbers, or else the last emitted ones.

    Raises UnusableReward.
    """
    if given is None and emitted:
        return dict(emitted[-1])
    if isinstance(given, (int, float)):
        given = {"reward": given}
    if not isinstance(given, Mapping) or not given:
        raise UnusableReward(
            f"{where} gave no reward ({given!r}): return a number, a dictionary of named numbers with the primary one "
            f"first, or call agentlightning.emit_reward"
        )
    dimensions = {}
    for name, value in given.items():
        if not isinstance(value, (int, float)) or not math.isfinite(value):
            raise UnusableReward(f"{where} gave {value!r} as the reward {name!r}, which is no finite number")
        dimensions[str(name)] = float(value)
    return dimensions
