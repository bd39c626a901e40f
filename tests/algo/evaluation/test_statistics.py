"""Intervals of shares, means and paired differences."""

import numpy as np
import pytest

from algo.evaluation.statistics import (
    Estimate,
    fit_logistic,
    mean_by_cluster,
    mean_difference,
    paired_difference,
    wilson_interval,
)


def share(counts, totals, seed):
    """Of clusters with one count and one total each."""
    return mean_by_cluster(range(len(counts)), counts, seed, totals)


def test_a_difference_is_paired_by_cluster_and_each_cluster_counts_once():
    ours, others = {"a": 1.0, "b": 0.5, "c": 0.0}, {"c": 1.0, "b": 0.5, "a": 0.0, "only theirs": 9.0}
    found = paired_difference(ours | {"only ours": 5.0}, others, seed=1)
    assert found.value == pytest.approx(0.0)
    assert found.low < 0 < found.high
    assert paired_difference(ours, {"d": 1.0}, seed=1) is None


@pytest.mark.parametrize("each", [-1.0, 0.0, 0.25, 1.0])
def test_equal_differences_are_no_share_their_interval_reaches_to_both_sides(each):
    reach = wilson_interval(0, 3).high
    expected = Estimate(value=each, low=each - reach, high=each + reach)
    assert mean_difference("aabbc", [each] * 5, seed=1) == expected
    assert paired_difference(dict.fromkeys("abc", each), dict.fromkeys("abc", 0.0), seed=1) == expected


def test_differences_that_are_equal_but_for_rounding_are_equal():
    found = mean_difference(range(20), [0.9 - 0.7] * 10 + [0.3 - 0.1] * 10, 1)
    assert found.value == pytest.approx(0.2) and found.high - found.low == pytest.approx(
        2 * wilson_interval(0, 20).high
    )


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [  # Newcombe, Statistics in Medicine 17, 1998, table I, score method without continuity correction
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_wilsons_interval_is_that_of_the_literature(successes, trials, low, high):
    found = wilson_interval(successes, trials)
    assert (round(found.low, 4), round(found.high, 4)) == (low, high)
    mirrored = wilson_interval(trials - successes, trials)
    assert (mirrored.low, mirrored.high) == pytest.approx((1 - found.high, 1 - found.low))


def test_without_differences_between_clusters_each_is_one_trial():
    assert share([2, 2, 2], [2, 2, 2], 1) == wilson_interval(3, 3)
    assert share([0, 0], [7, 1], 1) == wilson_interval(0, 2)
    assert share([1, 0, 1], [2, 0, 2], 1) == wilson_interval(1, 2)


def test_strengths_of_lopsided_results_are_found():
    """Wolves that win 2 % against four players, 20 deals: whole steps of Newton's method jump to and fro."""
    table = np.hstack([np.ones((80, 2)), -np.repeat(np.eye(4), 20, axis=0)])
    generator = np.random.default_rng(7)
    won = (generator.random(80) < 0.02).astype(float)
    best = fit_logistic(table, won, np.ones(80), np.zeros(6))
    for _ in range(14):
        deals = np.bincount(generator.integers(0, 20, 20), minlength=20)
        weights = np.tile(deals, 4).astype(float)
        found = fit_logistic(table, won, weights, best)
        likely = 1 / (1 + np.exp(-table @ found))
        assert table.T @ (weights * (won - likely)) == pytest.approx(found / [100, 4, 4, 4, 4, 4], abs=1e-5)


def test_the_intervals_of_clusters_cover_the_truth():
    # Deals whose two games have a win chance in common; the interval must cover 0.6 nearly as often as it says.
    generator = np.random.default_rng(3)
    covered = 0
    for trial in range(200):
        wins = generator.binomial(2, generator.beta(3, 2, size=60))
        found = share(list(wins), [2] * 60, trial)
        covered += found.low <= 0.6 <= found.high
    assert 180 <= covered <= 199
