"""Intervals for the mean of bounded observations that hold however often one looks.

The method is the betting confidence sequence of I. Waudby-Smith and A. Ramdas, "Estimating means of bounded random
variables by betting" (Journal of the Royal Statistical Society B 86(1), 2024), with their predictable plug-in bets.
For every possible mean m one gambler bets that the mean is above m, another that it is below, with stakes that depend
on earlier observations alone. If m is the mean, a gambler's fortune is a non-negative martingale that starts at 1, and
by Ville's inequality it ever reaches 1 / a with probability at most a. The interval is what neither has ruled out so
far, so it may be looked at after every observation, and one may stop because of what it shows.

Observations must lie between known bounds, and each must have the same mean given those before it: independent draws.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_LARGEST_SHARE = 0.5
"""Of what a gambler has, the most that one observation can take."""


@dataclass(frozen=True)
class Interval:
    """A mean with what is known of it. value: of the observations; the middle of the range where there are none.

    low, high: hold together, at all times at once, with the probability that was asked for.
    """

    value: float
    low: float
    high: float
    count: int

    def __str__(self) -> str:
        return f"{self.value:.2f} ({self.low:.2f} to {self.high:.2f})"


def confidence_sequence(
    observations: Sequence[float], low: float = 0.0, high: float = 1.0, error: float = 0.05, points: int = 500
) -> Interval:
    """The interval after these observations, given all the looks before.

    observations: in the order in which they were made, each from ``low`` to ``high``; ValueError for others.
    error: probability that any of the intervals, of however many observations, leaves out the mean.
    points: into how many parts the range is cut; bounds are points that are ruled out themselves, if any is.
    """
    scaled = (np.asarray(observations, dtype=float) - low) / (high - low)
    if scaled.size == 0:
        return Interval((low + high) / 2, low, high, 0)
    if not ((scaled > -1e-9) & (scaled < 1 + 1e-9)).all():
        raise ValueError(f"observations must lie between {low:g} and {high:g}")
    scaled = scaled.clip(0.0, 1.0)
    means = np.linspace(0.0, 1.0, points + 1)
    stakes = _stakes(scaled, error / 2)
    # Rounded outward: to the last point that is ruled out, or the end of the range.
    above = means[_rules_out(scaled, stakes, means, error / 2)]
    below = 1 - means[_rules_out(1 - scaled, stakes, means, error / 2)]
    bounds = (above.max(initial=0.0), below.min(initial=1.0))
    value, lowest, highest = (low + (high - low) * float(one) for one in (scaled.mean(), *bounds))
    return Interval(value, lowest, highest, scaled.size)


def _stakes(scaled: np.ndarray, error: float) -> np.ndarray:
    """What is staked on each observation, by those before it (the paper's equation 26)."""
    count = np.arange(1, scaled.size + 1)
    mean = (0.5 + np.cumsum(scaled)) / (count + 1)
    variance = (0.25 + np.cumsum((scaled - mean) ** 2)) / (count + 1)
    before = np.concatenate([[0.25], variance[:-1]])
    return np.sqrt(2 * np.log(1 / error) / (before * count * np.log1p(count)))


def _rules_out(scaled: np.ndarray, stakes: np.ndarray, means: np.ndarray, error: float) -> np.ndarray:
    """For each of ``means``, whether the gambler who bets that the mean is above it ever had 1 / ``error``."""
    with np.errstate(divide="ignore"):
        bets = np.minimum(stakes[:, None], _LARGEST_SHARE / means[None, :])
    fortunes = np.cumsum(np.log1p(bets * (scaled[:, None] - means[None, :])), axis=0)
    return fortunes.max(axis=0) >= np.log(1 / error)


class PairwiseTests:
    """Of several candidates on the same tasks: which is better than which, as far as one may say.

    For each ordered pair one gambler bets that the first has the higher mean, as above with m at no difference.
    With ``error`` divided by the number of pairs (union bound), the probability that any pair is ever judged wrongly
    is at most ``error``, whichever pairs are looked at and whenever.
    """

    def __init__(self, candidates: int, low: float, high: float, error: float):
        shape = (candidates, candidates)
        self._width = high - low
        self._log_needed = np.log(candidates * (candidates - 1) / error)
        self._count = np.zeros(shape)
        self._sum = np.zeros(shape)
        self._squares = np.zeros(shape)
        self._variance = np.full(shape, 0.25)
        self._fortune = np.zeros(shape)
        self._best_fortune = np.zeros(shape)

    def add(self, rewards: np.ndarray) -> None:
        """One task's rewards, shape (candidates,); NaN for a candidate that did not do it."""
        difference = (rewards[:, None] - rewards[None, :]) / self._width
        known = np.isfinite(difference)
        scaled = np.where(known, (difference + 1) / 2, 0.5)
        self._count += known
        count = np.maximum(self._count, 1)
        stake = np.sqrt(2 * self._log_needed / (self._variance * count * np.log1p(count)))
        bet = np.minimum(stake, _LARGEST_SHARE / 0.5)
        self._fortune += np.where(known, np.log1p(bet * (scaled - 0.5)), 0.0)
        self._best_fortune = np.maximum(self._best_fortune, self._fortune)
        self._sum += np.where(known, scaled, 0.0)
        mean = (0.5 + self._sum) / (count + 1)
        self._squares += np.where(known, (scaled - mean) ** 2, 0.0)
        self._variance = (0.25 + self._squares) / (count + 1)

    def better(self, one: int, other: int) -> bool:
        """Whether ``one`` has been shown to have the higher mean."""
        return bool(self._best_fortune[one, other] >= self._log_needed)
