"""Rollouts that a race needs to find the best of 16 prompts, against uniform testing; with simulated prompts."""

from pathlib import Path

from rich.table import Table

from tests.support.algo.prompt_stand_ins import StandIns, planted, raced

_SEEDS = 100
_WANTED = 95
_BUDGETS = range(200, 3001, 100)


def measure(model_folder: Path) -> Table:
    """Smallest budgets that find the best prompt in 95 of 100 seeded runs."""
    table = Table("success of the others", "races: rollouts", "all equally often", "ratio", title="Best of 16 prompts")
    for others in ((0.25, 0.50), (0.40, 0.50)):
        race, equal = (_least(others, find) for find in (raced, _by_testing_all))
        table.add_row(f"{others[0]:.2f} to {others[1]:.2f}", f"{race:.0f}", f"{equal:.0f}", f"{race / equal:.2f}")
    table.caption = "rollouts spent on average to choose the best (0.70) in 95 of 100 runs"
    return table


def _least(others, find):
    """Mean rollouts at the smallest sufficient budget."""
    for budget in _BUDGETS:
        found = []
        for seed in range(_SEEDS):
            rates, best = planted(seed, others=others)
            winner, cost = find(rates, seed, budget)
            found.append((winner == best, cost))
        right, spent = map(sum, zip(*found, strict=True))
        if right >= _WANTED:
            return spent / _SEEDS
    raise RuntimeError("no budget was enough")


def _by_testing_all(rates, seed, budget):
    tasks = budget // len(rates)
    rewards = StandIns(rates, seed).play(range(len(rates)), tasks)
    return int(rewards.mean(axis=0).argmax()), tasks * len(rates)
