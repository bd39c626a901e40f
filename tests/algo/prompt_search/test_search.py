"""Races and confirmations, with stand-ins whose success depends on the prompt by a known amount."""

import asyncio
import json
import math
from pathlib import Path

import numpy as np
import pytest

from algo.prompt_search.search import halve, judge
from tests.support.algo.prompt_stand_ins import StandIns, planted, searched

BUDGET = 1600
RACES = json.loads((Path(__file__).parent / "frozen.json").read_text())["races"]


@pytest.fixture
def few_resamples(monkeypatch):
    """So that a hundred verdicts take seconds."""
    monkeypatch.setattr("algo.evaluation.statistics._RESAMPLES", 400)


@pytest.mark.usefixtures("few_resamples")
def test_the_best_of_sixteen_is_found_and_confirmed_within_the_budget():
    found = confirmed = 0
    for seed in range(50):
        rates, best = planted(seed)
        winner, verdict, spent = searched(rates, seed, BUDGET)
        assert spent <= BUDGET
        found += winner == best
        confirmed += winner == best and verdict.better
    assert found >= 47
    assert confirmed >= 47


@pytest.mark.usefixtures("few_resamples")
def test_equal_candidates_give_a_better_one_in_few_of_a_hundred_runs():
    called = 0
    for seed in range(100):
        _, verdict, _ = searched([0.5] * 16, seed, 400)
        called += verdict is not None and verdict.better
    assert called <= 5


@pytest.mark.parametrize("race", RACES, ids=[str(race["seed"]) for race in RACES])
def test_a_race_decides_as_it_did_before_it_was_written_anew(race):
    """On rewards that were drawn then; none of these races had an early exit, which is no more."""
    chance = np.random.default_rng(race["seed"])
    count = int(chance.integers(2, 9))
    chance.integers(40, 200)
    rewards = (chance.random((race["budget"], count)) < chance.uniform(0.4, 0.6, count)).astype(float)
    if race["seed"] % 3 == 0:
        rewards[chance.random(rewards.shape) < 0.1] = np.nan

    async def play(left, tasks):
        return rewards[tasks.start : tasks.stop][:, list(left)]

    winner, found = asyncio.run(halve(count, race["budget"], play))
    assert (winner, [len(one) for one in found]) == (race["winner"], race["tasks"])


def test_failed_plays_are_left_out_of_comparisons():
    rewards = StandIns([0.9, 0.3], seed=5).play((0, 1), 200)
    rewards[::3, 0] = np.nan
    verdict = judge(rewards)
    assert verdict.better and verdict.tasks == 133
    assert verdict.challenger.value == pytest.approx(np.nanmean(rewards[:, 0]))
    assert judge(np.full((5, 2), math.nan)) is None


def test_a_worse_challenger_is_called_worse_and_a_better_one_may_have_to_stand_apart():
    verdict = judge(StandIns([0.2, 0.8], seed=5).play((0, 1), 50))
    assert verdict.worse and not verdict.better and verdict.difference.high < 0
    # Better on every task by the same little: the difference is clear, and the two means are about the same.
    incumbent = np.linspace(0.0, 0.9, 50)
    close = np.stack([incumbent + np.linspace(0.05, 0.06, 50), incumbent], axis=1)
    assert judge(close).better and not judge(close, apart=True).better
    assert judge(StandIns([0.9, 0.1], seed=5).play((0, 1), 50), apart=True).better
