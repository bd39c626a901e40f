"""Races and confirmations, with stand-ins whose success depends on the prompt by a known amount."""

import numpy as np
import pytest

from algo.prompt_search.intervals import confidence_sequence
from algo.prompt_search.racing import Confirmation, Race
from tests.support.algo.prompt_stand_ins import StandIns, planted, raced, searched

BUDGET = 2000


def test_the_best_of_sixteen_is_found_and_confirmed_within_the_budget():
    found = confirmed = 0
    for seed in range(100):
        rates, best = planted(seed)
        race, verdict, spent = searched(rates, seed, BUDGET)
        assert spent <= BUDGET
        found += race.winner == best
        confirmed += race.winner == best and verdict.better
    assert found >= 95
    assert confirmed >= 95


def test_equal_candidates_give_a_winner_in_few_of_a_hundred_runs():
    called = 0
    for seed in range(100):
        _, verdict, _ = searched([0.5] * 16, seed, BUDGET)
        called += verdict is not None and verdict.better
    assert called <= 5


def test_an_interval_holds_at_every_look():
    chance, missed = np.random.default_rng(1), 0
    for _ in range(100):
        seen = (chance.random(300) < 0.3).astype(float)
        looks = [confidence_sequence(seen[:count], points=100) for count in range(10, 301, 10)]
        missed += any(not look.low <= 0.3 <= look.high for look in looks)
    assert missed <= 5


def test_an_interval_narrows_on_the_mean_and_moves_with_the_bounds():
    rewards = [0.0, 1.0, 1.0, 1.0] * 100
    found = confidence_sequence(rewards)
    assert 0.6 < found.low < 0.75 < found.high < 0.85
    shifted = confidence_sequence([10 * reward - 5 for reward in rewards], low=-5.0, high=5.0)
    assert shifted.low == pytest.approx(10 * found.low - 5)
    assert confidence_sequence([]).low == 0.0
    with pytest.raises(ValueError, match="between 0 and 1"):
        confidence_sequence([1.5])


def test_a_race_stops_when_the_best_is_clear_and_says_so():
    race = raced([0.1, 0.1, 0.95, 0.1], seed=3, budget=1000)
    assert (race.winner, race.ending) == (2, "clear")
    assert race.spent < 500
    assert all("worse" in race.standings[other].left for other in (0, 1, 3))
    equal = raced([0.5] * 4, seed=3, budget=200)
    assert equal.ending == "budget" and 180 <= equal.spent <= 200


def test_candidates_are_given_the_same_new_tasks_and_the_first_of_equals_goes_on():
    race, seen = Race(3, 60), set()
    while plays := race.ask():
        assert not seen & set(plays.tasks)
        seen |= set(plays.tasks)
        race.tell(plays, np.ones((len(plays.tasks), len(plays.candidates))))
    assert race.winner == 0 and seen == set(range(race.tasks_done))


def test_failed_plays_are_left_out_of_comparisons():
    confirmation, stand_ins = Confirmation(400), StandIns([0.9, 0.3], seed=5)
    while plays := confirmation.ask():
        rewards = stand_ins.play((0, 1), len(plays.tasks))
        rewards[::3, 0] = np.nan
        confirmation.tell(plays, rewards)
    verdict = confirmation.verdict()
    assert verdict.better and verdict.ending == "clear"
    assert verdict.difference.count == verdict.challenger.count < verdict.incumbent.count


def test_a_worse_challenger_is_called_worse():
    confirmation, stand_ins = Confirmation(400), StandIns([0.2, 0.8], seed=5)
    while plays := confirmation.ask():
        confirmation.tell(plays, stand_ins.play((0, 1), len(plays.tasks)))
    verdict = confirmation.verdict()
    assert verdict.worse and not verdict.better and verdict.difference.high < 0
    assert confirmation.spent < 400


def test_budgets_that_are_too_small_are_refused():
    with pytest.raises(ValueError, match="too few for a race of 16"):
        Race(16, 63)
    with pytest.raises(ValueError, match="too few for a confirmation"):
        Confirmation(7)


def test_a_race_that_left_some_behind_does_not_say_that_the_best_is_clear_of_them():
    race = Race(4, 400)
    while len(race.racing) == 4 and (plays := race.ask()):
        race.tell(plays, np.tile([1.0, 1.0, 0.9, 0.9], (len(plays.tasks), 1)))
    assert race.racing == (0, 1)
    while plays := race.ask():
        race.tell(plays, np.tile([1.0, 0.0], (len(plays.tasks), 1)))
    assert (race.winner, race.ending) == (0, "halved")
