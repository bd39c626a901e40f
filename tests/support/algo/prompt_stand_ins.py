"""Scripted stand-ins for prompts: candidates that succeed with a known probability, on tasks of uneven difficulty."""

import asyncio

import numpy as np

from algo.prompt_search.search import successive_halving


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
    """(index of the winner, plays spent)."""
    stand_ins = StandIns(rates, seed)

    async def play(left, tasks):
        return stand_ins.play(left, len(tasks))

    winner, rewards = asyncio.run(successive_halving(len(rates), budget, play))
    return winner, sum(map(len, rewards))


def planted(seed, best=0.70, others=(0.25, 0.50), count=16):
    """Rates of so many candidates and the index of the best, which is not the first."""
    chance = np.random.default_rng(seed)
    rates = chance.uniform(*others, size=count)
    index = int(chance.integers(1, count))
    rates[index] = best
    return rates.tolist(), index
