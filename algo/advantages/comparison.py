"""What a row's reward can be compared with, and whether that tells better from worse.

An estimator is only asked about rewards of which it can tell (``estimators.token_advantages``).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

EQUAL_WITHIN = 1e-6
"""Rewards no further apart than this count as equal: verl's estimators compute in float32, where a smaller difference
is rounding error, and GRPO would divide it by a deviation as small."""


@dataclass(frozen=True)
class Baseline:
    """What rewards are compared with.

    mean: of the steps before; in the first step of its own rewards.
    deviation: root of the mean squared distance of rewards from the baselines that they were compared with. Unlike the
        mean it takes in the present step already: a first surprise after many equal rewards would else be divided by
        next to nothing.
    """

    mean: float
    deviation: float


@dataclass(frozen=True)
class Comparison:
    """What a row can be compared with.

    by_outcome: whether the estimator can tell its O (see ``estimators``) from others.
    by_turn: whether its turn rewards are compared on their own, and differ from others.
    turn_means: m, by question. deviation: s.
    baseline: of its role; None with other estimators than role_baseline.
    """

    by_outcome: bool
    by_turn: bool = False
    turn_means: Mapping[str, float] = field(default_factory=dict)
    deviation: float = 1.0
    baseline: Baseline | None = None


def equal(values: Iterable[float]) -> bool:
    """Whether values are all the same, rounding apart."""
    found = list(values)
    return not found or max(found) - min(found) <= EQUAL_WITHIN


def differ_from(values: Iterable[float], baseline: float) -> bool:
    """Whether a value is another than the baseline, rounding apart."""
    return any(abs(value - baseline) > EQUAL_WITHIN for value in values)
