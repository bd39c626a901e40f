"""Races and confirmations, with stand-ins whose success depends on the prompt by a known amount."""

import asyncio
import math

import numpy as np
import pytest

from algo.prompt_search.search import judge, successive_halving
from tests.support.algo.prompt_stand_ins import StandIns


def test_each_round_plays_the_better_half_on_new_tasks_and_of_equals_the_first_stays():
    rewards = np.array([[0.5, 0.2, 0.5, 0.9, math.nan]] * 40)
    rounds = []

    async def play(left, tasks):
        rounds.append((list(left), tasks))
        return rewards[tasks.start : tasks.stop][:, list(left)]

    winner, found = asyncio.run(successive_halving(5, 60, play))
    assert rounds == [([0, 1, 2, 3, 4], range(4)), ([0, 2, 3], range(4, 10)), ([0, 3], range(10, 21))]
    assert winner == 3 and [len(one) for one in found] == [21, 4, 10, 21, 4]


def test_failed_plays_are_left_out_of_comparisons():
    rewards = StandIns([0.9, 0.3], seed=5).play((0, 1), 200)
    rewards[::3, 0] = np.nan
    verdict = judge(rewards)
    assert verdict.better and verdict.tasks == 133
    assert verdict.challenger.value == pytest.approx(np.nanmean(rewards[:, 0]))
    assert judge(np.full((5, 2), math.nan)) is None


def test_a_worse_challenger_is_called_worse_and_a_better_one_may_have_to_stand_apart():
    few = judge(np.array([[1.0, 0.0]] * 19))
    assert few.difference.low > 0 and not few.better and "fewer than 20" in few.claim
    assert judge(np.array([[1.0, 0.0]] * 20)).better
    verdict = judge(StandIns([0.2, 0.8], seed=5).play((0, 1), 50))
    assert "is worse than the baseline" in verdict.claim and verdict.difference.high < 0
    unclear = judge(np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]] * 7))
    assert unclear.difference.value > 0 and not unclear.better and "not clearly better" in unclear.claim
    # Better on every task by the same little: the difference is clear, and the two means are about the same.
    incumbent = np.linspace(0.0, 0.9, 50)
    close = np.stack([incumbent + np.linspace(0.05, 0.06, 50), incumbent], axis=1)
    assert judge(close).better and not judge(close, disjoint_intervals=True).better
    assert judge(StandIns([0.9, 0.1], seed=5).play((0, 1), 50), disjoint_intervals=True).better


@pytest.mark.parametrize("bounds", [(0.0, 0.01), (-50.0, 50.0)])
def test_verdicts_do_not_depend_on_the_unit_of_rewards(bounds):
    low, width = bounds[0], bounds[1] - bounds[0]
    shares = np.array([[0.6, 0.5]] * 40)
    usual, scaled = judge(shares), judge(low + width * shares, bounds=bounds)
    assert scaled.better == usual.better is True
    assert scaled.difference.low == pytest.approx(width * usual.difference.low)
    assert scaled.incumbent.high == pytest.approx(low + width * usual.incumbent.high)
