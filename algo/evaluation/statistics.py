"""Shares, means and differences with 95 % intervals, a Bradley-Terry fit, and detectable differences.

The unit is the game or the task, never the seat. Games of one deal share the cards, so intervals over several of them
resample whole deals. Independent of the workload.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import lru_cache
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

CONFIDENCE = 0.95
POWER = 0.8
"""Probability of detecting a difference of the stated size."""
_PRIOR_DEVIATION, _ADVANTAGE_DEVIATION = 2.0, 10.0
"""Prior deviations of the fit's coefficients and of its first one, in log-odds."""
_Z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
_REACH = _Z + NormalDist().inv_cdf(POWER)
_RESAMPLES = 5_000
_ROUNDING = 1e-9  # rewards that are equal may differ by this in binary
_FITS = 300
_LEAST_SPREAD = 0.5
"""Of resampled fits, relative to the deviation of the covariance. Where a player wins or loses all its games, they only
differ by how often each pairing was drawn, though not much is known of its strength."""
_STEPS = 50
_TOLERANCE = 1e-8

Floats = NDArray[np.float64]


class Frozen(BaseModel):
    """Immutable; unknown fields are rejected."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Estimate(Frozen):
    """A value with its 95 % confidence interval."""

    value: float
    low: float
    high: float

    def overlaps(self, other: "Estimate") -> bool:
        """Whether the two intervals have a point in common."""
        return self.low <= other.high and other.low <= self.high


def wilson_interval(successes: float, trials: float) -> Estimate:
    """A share with Wilson's score interval, which also holds for few trials and for shares near 0 and 1.

    E. B. Wilson, Probable Inference, the Law of Succession, and Statistical Inference, JASA 22, 1927; recommended by
    Brown, Cai and DasGupta, Interval Estimation for a Binomial Proportion, Statistical Science 16, 2001.
    """
    share, squared = successes / trials, _Z**2
    center = (share + squared / (2 * trials)) / (1 + squared / trials)
    half = _Z / (1 + squared / trials) * (share * (1 - share) / trials + squared / (4 * trials**2)) ** 0.5
    # Rounding must not put the share itself outside, at 0 and 1.
    return Estimate(value=share, low=max(0.0, min(center - half, share)), high=min(1.0, max(center + half, share)))


def mean_by_cluster(
    clusters: Sequence[Hashable],
    values: Sequence[float],
    seed: int,
    counts: Sequence[float] | None = None,
    *,
    shares: bool = True,
) -> Estimate:
    """sum(values) / sum(counts), with the percentile bootstrap over clusters (Davison and Hinkley, 1997, 3.8 and 5.3).

    clusters: one for each value. counts: number of terms in each value; 1 each by default.
    Where all clusters have the same mean, the bootstrap has no width: the interval then is Wilson's, with each cluster
    as one trial, for a mean from 0 to 1 of ``shares``, and else the mean alone. Raises ValueError for counts of 0 only.
    """
    total, count = _totals(clusters, values, counts)
    mean = float(total.sum() / count.sum())
    if np.ptp(total / count) == 0:
        within = shares and 0 <= mean <= 1
        return wilson_interval(mean * len(total), len(total)) if within else Estimate(value=mean, low=mean, high=mean)
    weights = _draws(len(total), _RESAMPLES, seed)
    return percentile_interval(mean, (weights @ total) / (weights @ count))


def mean_difference(clusters: Sequence[Hashable], differences: Sequence[float], seed: int) -> Estimate:
    """Mean of paired differences, with the bootstrap over clusters. clusters: one for each difference.

    Where all clusters have the same mean, the bootstrap has no width: the half width then is the upper end of Wilson's
    interval of 0 among these clusters. Raises ValueError without differences.
    """
    total, count = _totals(clusters, differences)
    if np.ptp(total / count) > _ROUNDING:
        return mean_by_cluster(clusters, differences, seed)
    value, unseen = float(total.sum() / count.sum()), wilson_interval(0, len(total)).high
    return Estimate(value=value, low=value - unseen, high=value + unseen)


def paired_difference(
    ours: Mapping[Any, float],
    others: Mapping[Any, float],
    seed: int,
    cluster_of: Callable[[Any], Hashable] = lambda key: key,
) -> Estimate | None:
    """Mean of ``ours`` less ``others`` over the keys (deals, tasks, games) that both have; None where there are none.

    Each key counts once. Pairing removes the variance between clusters, so far fewer are needed.
    cluster_of: the cluster of a key, by default the key itself.
    """
    both = [key for key in ours if key in others]
    clusters, differences = map(cluster_of, both), [ours[key] - others[key] for key in both]
    return mean_difference([*clusters], differences, seed) if both else None


def _totals(
    clusters: Sequence[Hashable], values: Sequence[float], counts: Sequence[float] | None = None
) -> tuple[Floats, Floats]:
    """(sum of the values, sum of the counts) of each cluster with a count: shape (clusters,)."""
    sums: defaultdict[Hashable, Floats] = defaultdict(lambda: np.zeros(2))
    for cluster, value, count in zip(clusters, values, counts or [1.0] * len(values), strict=True):
        sums[cluster] += value, count
    parts = [part for part in sums.values() if part[1] > 0]
    if not parts:
        raise ValueError("no values to average")
    total, count = np.array(parts).T
    return total, count


# --- strengths --------------------------------------------------------------------------------------------------------


def fit_logistic(table: Floats, won: Floats, weights: Floats, start: Floats) -> Floats:
    """Coefficients of a logistic (Bradley-Terry) regression of the winner on the players, by Newton's method.

    Bradley and Terry, Rank Analysis of Incomplete Block Designs, Biometrika 39, 1952. All coefficients have a normal
    prior of mean 0 (a ridge), the first, one side's advantage between equals, a wide one: a player that always wins has
    a finite strength. table: shape (rows, columns). won: shape (rows,), 1.0, 0.5 for a draw, or 0.0. weights: shape
    (rows,). Raises ArithmeticError if it does not converge.
    """
    found, penalty = start.copy(), _penalty(table)

    def loss(at: Floats) -> float:
        odds = table @ at
        return float(weights @ (np.logaddexp(0.0, odds) - won * odds) + penalty @ at**2 / 2)

    for _ in range(_STEPS):
        likely, curvature = _likely(table, found, weights)
        step = np.linalg.solve(curvature, table.T @ (weights * (won - likely)) - penalty * found)
        if np.abs(step).max() < _TOLERANCE:
            return found + step
        # Lopsided results make whole steps jump to and fro; the loss is convex, so shorter ones lower it.
        least = loss(found)
        while loss(found + step) > least and np.abs(step).max() > _TOLERANCE:
            step /= 2
        found += step
    raise ArithmeticError(f"the fit of {len(won)} games did not converge in {_STEPS} steps")


def covariance(table: Floats, weights: Floats, found: Floats) -> Floats:
    """Covariance of the fitted coefficients, by Laplace's approximation: shape (columns, columns).

    Arguments as in ``fit_logistic``. Bishop, Pattern Recognition and Machine Learning, 2006, chapter 4.5.1.
    """
    return np.linalg.inv(_likely(table, found, weights)[1])


def fit_by_cluster(table: Floats, won: Floats, clusters: Sequence[Hashable], seed: int) -> Callable[[Floats], Estimate]:
    """The fit, as a function of weights: the estimate of the weighted sum of its coefficients, by 300 resamples of
    whole clusters. clusters: one for each row.

    Where these differ less than games can, as when a player wins all of them, the interval is that of the covariance.
    """
    numbers = {cluster: number for number, cluster in enumerate(dict.fromkeys(clusters))}
    of_row = np.array([numbers[cluster] for cluster in clusters])
    once = np.ones(len(won))
    best = fit_logistic(table, won, once, np.zeros(table.shape[1]))
    spread = covariance(table, once, best)
    draws = _draws(len(numbers), _FITS, seed)
    fits = np.array([fit_logistic(table, won, times[of_row].astype(float), best) for times in draws])

    def estimate(weights: Floats) -> Estimate:
        value, resampled, variance = float(best @ weights), fits @ weights, float(weights @ spread @ weights)
        if resampled.std() < _LEAST_SPREAD * variance**0.5:
            return normal_interval(value, variance)
        return percentile_interval(value, resampled)

    return estimate


def normal_interval(value: float, variance: float, among: int = 1) -> Estimate:
    """A value with the interval of a normal distribution of this variance.

    among: number of intervals that hold together with the confidence of one (Bonferroni).
    """
    half = NormalDist().inv_cdf(1 - (1 - CONFIDENCE) / (2 * among)) * max(variance, 0.0) ** 0.5
    return Estimate(value=value, low=value - half, high=value + half)


def _penalty(table: Floats) -> Floats:
    return np.array([_ADVANTAGE_DEVIATION, *[_PRIOR_DEVIATION] * (table.shape[1] - 1)]) ** -2


def _likely(table: Floats, found: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """(chance of each row to be won, curvature of the log posterior)."""
    likely = 1.0 / (1.0 + np.exp(-np.clip(table @ found, -40, 40)))
    return likely, (table.T * (weights * likely * (1.0 - likely))) @ table + np.diag(_penalty(table))


# --- detectable differences -------------------------------------------------------------------------------------------


def deals_needed(difference: float) -> int:
    """Deals, one game of a side each, that detect such a difference of two win rates about 1/2.

    Normal approximation of a two-sided test at 5 % between two independent evaluations; the same deals or
    rates further from 1/2 need fewer.
    """
    return math.ceil((_REACH / difference) ** 2 / 2)


def detectable_difference(deals: int) -> float:
    """The smallest difference that so many deals detect, likewise."""
    return _REACH / math.sqrt(2 * deals)


def half_width(deals: float) -> float:
    """Half of the 95 % interval of a win rate about 1/2 over so many deals, one game each."""
    return _Z / (2 * math.sqrt(deals))


@lru_cache(maxsize=4)  # most estimates of an evaluation have the same clusters
def _draws(clusters: int, resamples: int, seed: int) -> NDArray[np.int64]:
    """Draws of each cluster: shape (resamples, clusters)."""
    return np.random.default_rng(seed).multinomial(clusters, np.full(clusters, 1 / clusters), resamples)


def percentile_interval(value: float, resampled: Floats) -> Estimate:
    """A value between the percentiles of its resamples; the interval holds the value itself."""
    low, high = np.quantile(resampled, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return Estimate(value=value, low=min(float(low), value), high=max(float(high), value))


# --- the log ----------------------------------------------------------------------------------------------------------


def flat_metrics(figures: Mapping[str, Estimate | float | None]) -> dict[str, float]:
    """Metrics below ``evaluation/``; an estimate also has the ends of its interval. None is left out."""
    found: dict[str, float] = {}
    for name, value in figures.items():
        if isinstance(value, Estimate):
            found |= {name: value.value, f"{name}/low": value.low, f"{name}/high": value.high}
        elif value is not None:
            found[name] = value
    return {f"evaluation/{name}": value for name, value in found.items()}
