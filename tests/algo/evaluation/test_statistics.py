"""Paired differences; the other intervals are checked in ``tests/algo/werewolf/test_game_statistics.py``."""

import random
from statistics import fmean

import pytest

from algo.evaluation.statistics import Estimate, paired_difference, wilson_interval


def test_a_difference_is_paired_by_cluster_and_each_cluster_counts_once():
    ours, others = {"a": 1.0, "b": 0.5, "c": 0.0}, {"c": 1.0, "b": 0.5, "a": 0.0, "only theirs": 9.0}
    found = paired_difference(ours | {"only ours": 5.0}, others, seed=1)
    assert found.value == pytest.approx(0.0)
    assert found.low < 0 < found.high
    assert paired_difference(ours, {"d": 1.0}, seed=1) is None


def test_pairing_takes_out_what_the_clusters_decide():
    """Deals are hard or easy, the difference is one in ten: paired it shows, between independent means it would not."""
    chance = random.Random(3)
    hard = [chance.choice([0.0, 10.0]) for _ in range(200)]
    ours = {deal: level + 0.1 + chance.gauss(0, 0.1) for deal, level in enumerate(hard)}
    others = {deal: level + chance.gauss(0, 0.1) for deal, level in enumerate(hard)}
    found = paired_difference(ours, others, seed=1)
    assert found.value == pytest.approx(fmean(ours.values()) - fmean(others.values()))
    assert 0 < found.low < 0.1 < found.high < 0.2


def test_equal_differences_of_few_clusters_prove_nothing():
    found = paired_difference(dict.fromkeys("abcd", 1.0), dict.fromkeys("abcd", 1.0), seed=1)
    unseen = wilson_interval(0, 4).high
    assert found == Estimate(value=0.0, low=-unseen, high=unseen)
    assert unseen > 0.4
