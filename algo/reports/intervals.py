"""Shares and means with 95 % confidence intervals."""

from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
from pydantic import BaseModel, ConfigDict

CONFIDENCE = 0.95
_RESAMPLES = 5_000


class Estimate(BaseModel):
    """A value, such as a share from 0 to 1, with its 95 % confidence interval."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    value: float
    low: float
    high: float

    def touches(self, other: "Estimate") -> bool:
        """Whether the two intervals have a point in common."""
        return self.low <= other.high and other.low <= self.high


def wilson_interval(successes: float, trials: float) -> Estimate:
    """A share with Wilson's score interval, which also holds for few trials and for shares near 0 and 1.

    E. B. Wilson, Probable Inference, the Law of Succession, and Statistical Inference, JASA 22, 1927; recommended by
    Brown, Cai and DasGupta, Interval Estimation for a Binomial Proportion, Statistical Science 16, 2001.
    Raises ValueError unless 0 <= successes <= trials and there are trials.
    """
    if not 0 <= successes <= trials or trials == 0:
        raise ValueError(f"{successes} successes in {trials} trials give no share")
    z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    share = successes / trials
    center = (share + z**2 / (2 * trials)) / (1 + z**2 / trials)
    half = z / (1 + z**2 / trials) * (share * (1 - share) / trials + z**2 / (4 * trials**2)) ** 0.5
    # Rounding must not put the share itself outside, as it would at 0 and 1.
    return Estimate(value=share, low=max(0.0, min(center - half, share)), high=min(1.0, max(center + half, share)))


def clustered_share(counts: Sequence[float], totals: Sequence[float], seed: int) -> Estimate:
    """A share of sums, sum(counts) / sum(totals), whose parts come in clusters that are independent of each other.

    counts, totals: one entry for each cluster, 0 <= count <= total.
    The interval is the percentile bootstrap over clusters (Davison and Hinkley, Bootstrap Methods and their
    Application, 1997, chapters 3.8 and 5.3). Where all clusters have the same share, resampling says nothing of chance;
    then it is Wilson's with each cluster as one trial.
    Raises ValueError when the totals are all 0.
    """
    parts = [(count, total) for count, total in zip(counts, totals, strict=True) if total > 0]
    if not parts:
        raise ValueError("no cluster has a total above 0, so there is no share")
    count, total = np.array(parts, dtype=float).T
    share = float(count.sum() / total.sum())
    if np.ptp(count / total) == 0:
        return wilson_interval(share * len(parts), len(parts))
    weights = np.random.default_rng(seed).multinomial(len(parts), np.full(len(parts), 1 / len(parts)), _RESAMPLES)
    resampled = (weights @ count) / (weights @ total)
    low, high = np.quantile(resampled, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return Estimate(value=share, low=min(float(low), share), high=max(float(high), share))


def clustered_mean(sums: Sequence[float], counts: Sequence[int], seed: int) -> Estimate:
    """The mean, sum(sums) / sum(counts), of values that come in clusters that are independent of each other.

    sums, counts: of each cluster's values. The interval is the percentile bootstrap over clusters, as that of
    ``clustered_share``. Where all clusters have the same mean, resampling says nothing of chance: then it is Wilson's
    for a mean from 0 to 1, which values within these bounds cannot make too narrow, and else the mean alone.
    Raises ValueError when there are no values.
    """
    means = [total / count for total, count in zip(sums, counts, strict=True) if count]
    if means and max(means) - min(means) == 0 and not 0 <= means[0] <= 1:
        return Estimate(value=means[0], low=means[0], high=means[0])
    return clustered_share(sums, counts, seed)
