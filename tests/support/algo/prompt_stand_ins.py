"""Scripted stand-ins for prompts: candidates that succeed with a known probability, on tasks of uneven difficulty."""

import numpy as np

from algo.prompt_search.racing import Confirmation, Race


class StandIns:
    """rates: of success, on average over the tasks. Some tasks are easier for all, by up to ``spread``."""

    def __init__(self, rates, seed, spread=0.15):
        self._rates = np.asarray(rates)
        self._chance = np.random.default_rng(seed)
        self._spread = spread

    def play(self, candidates, tasks):
        ease = self._chance.uniform(-self._spread, self._spread, size=(tasks, 1))
        rates = self._rates[list(candidates)] + ease
        return (self._chance.random(rates.shape) < rates).astype(float)


def raced(rates, seed, budget):
    stand_ins, race = StandIns(rates, seed), Race(len(rates), budget)
    while plays := race.ask():
        race.tell(plays, stand_ins.play(plays.candidates, len(plays.tasks)))
    return race


def searched(rates, seed, budget, for_search=0.5):
    """A race, then the winner against candidate 0 on fresh tasks; (race, verdict or None where 0 won, plays spent)."""
    race = raced(rates, seed, int(budget * for_search))
    if race.winner == 0:
        return race, None, race.spent
    confirmation = Confirmation(budget - race.spent)
    fresh = StandIns([rates[race.winner], rates[0]], seed + 1_000_000)
    while plays := confirmation.ask():
        confirmation.tell(plays, fresh.play(plays.candidates, len(plays.tasks)))
    return race, confirmation.verdict(), race.spent + confirmation.spent


def planted(seed, best=0.70, others=(0.25, 0.50), count=16):
    """Rates of so many candidates and the index of the best, which is not the first."""
    chance = np.random.default_rng(seed)
    rates = chance.uniform(*others, size=count)
    index = int(chance.integers(1, count))
    rates[index] = best
    return rates.tolist(), index
