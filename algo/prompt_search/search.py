"""The search: a race for each prompt, edits and further races, a race of the combined winners, one confirmation.

A race is successive halving (Karnin, Koren and Somekh, "Almost optimal exploration in multi-armed bandits", ICML 2013):
in each round all remaining prompts play the same new tasks, and the better half stays. Its means are biased, since the
best of many is partly lucky. Hence one confirmation, on a number of held-out tasks that is fixed in advance: winner and
baseline play the same tasks, and the winner is better if the 95 % interval of the paired difference is above zero.
"""

import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from algo.evaluation.page import value_text
from algo.evaluation.statistics import Estimate, mean_by_cluster, paired_difference
from algo.prompt_search.arena import Arena, TaskResult
from algo.prompt_search.plan import CONFIRMING_TASKS, PREVIEW_TASKS, SearchPlan
from algo.prompt_search.prompts import Candidate, Slots, Tree
from algo.prompt_search.proposer import Proposer
from algo.prompt_search.tasks import Stage

logger = logging.getLogger("algo.find_best_prompt")

_SEED = 1
"""Of the resampling behind intervals."""


@dataclass(frozen=True)
class Verdict:
    """Result of the confirmation. tasks: finished by both. difference: challenger less incumbent, on these.

    better: at least ``CONFIRMING_TASKS`` tasks, and the difference's interval is above zero; with
    ``disjoint_intervals`` the other two do not overlap, either.
    """

    better: bool
    tasks: int
    difference: Estimate
    challenger: Estimate
    incumbent: Estimate

    @property
    def claim(self) -> str:
        if self.better:
            return "is better than the baseline, #0"
        if self.tasks < CONFIRMING_TASKS:
            return f"is not confirmed, since both finished fewer than {CONFIRMING_TASKS} held-out tasks; keep #0"
        return (
            "is worse than the baseline; keep #0"
            if self.difference.high < 0
            else "is not clearly better than the baseline, #0"
        )


Play = Callable[[Sequence[int], range], Awaitable[np.ndarray]]
"""(candidate indices, task numbers) -> rewards, shape (tasks, candidates), NaN for failures."""


async def successive_halving(candidates: int, budget: int, play: Play) -> tuple[int, list[list[float]]]:
    """(index of the winner, rewards of each candidate). budget: plays of one task by one candidate.

    Each round gets an equal share of the remaining budget. Ties keep the earlier candidate, so that an incumbent is not
    replaced by chance.
    """
    rewards: list[list[float]] = [[] for _ in range(candidates)]
    left, done = list(range(candidates)), 0

    def rank(candidate: int) -> tuple[float, int]:
        known = _known(rewards[candidate])
        return (-sum(known) / len(known) if known else math.inf), candidate

    while len(left) > 1 and budget >= len(left):
        tasks = max(1, budget // math.ceil(math.log2(len(left))) // len(left))
        table = await play(left, range(done, done + tasks))
        for candidate, column in zip(left, table.T, strict=True):
            rewards[candidate] += column.tolist()
        budget -= table.size
        done += tasks
        left = sorted(sorted(left, key=rank)[: math.ceil(len(left) / 2)])
    return min(left, key=rank), rewards


def judge(
    rewards: np.ndarray, disjoint_intervals: bool = False, bounds: tuple[float, float] = (0.0, 1.0)
) -> Verdict | None:
    """rewards: of challenger and incumbent on held-out tasks, shape (tasks, 2); None if both finished no task.

    disjoint_intervals: see ``Verdict``. bounds: of a reward.
    """
    both = rewards[np.isfinite(rewards).all(axis=1)]
    columns = [dict(enumerate(column)) for column in _shares(both, bounds).T.tolist()]
    difference = paired_difference(*columns, _SEED)
    if difference is None:
        return None
    challenger, incumbent = (_mean(column, bounds) for column in both.T)
    apart = not (disjoint_intervals and challenger.overlaps(incumbent))
    better = len(both) >= CONFIRMING_TASKS and difference.low > 0 and apart
    return Verdict(better, len(both), _as_reward(difference, 0.0, bounds), challenger, incumbent)


def _mean(rewards: np.ndarray, bounds: tuple[float, float]) -> Estimate:
    shares = _shares(rewards, bounds).tolist()
    return _as_reward(mean_by_cluster(range(len(shares)), shares, _SEED), bounds[0], bounds)


def _shares(rewards: np.ndarray, bounds: tuple[float, float]) -> np.ndarray:
    """Rewards as shares of their range, from which intervals are made."""
    low, high = bounds
    return (rewards - low) / (high - low)


def _as_reward(share: Estimate, lowest: float, bounds: tuple[float, float]) -> Estimate:
    low, high = bounds
    return Estimate(**{name: lowest + value * (high - low) for name, value in share.model_dump().items()})


class Search:
    """One search. slots: the searched prompts, one at a time and then combined. proposer: None for no edits.

    races: of each prompt in each race: tasks, mean reward (None where all failed), and whether it won.
    winner: of the races. verdict: of the confirmation; None if the incumbent won, or both finished no held-out task.
    examples: (incumbent, winner) on the held-out task with the largest difference.
    """

    def __init__(self, plan: SearchPlan, slots: Slots, tree: Tree, arena: Arena, proposer: Proposer | None):
        self.plan, self.tree, self.arena = plan, tree, arena
        self.winner = tree.incumbent
        self.verdict: Verdict | None = None
        self.races: list[dict[str, Any]] = []
        self.examples: tuple[TaskResult, TaskResult] | None = None
        self._slots = slots
        self._proposer = proposer
        self._races_left = plan.races(slots, tree)

    async def run(self) -> None:
        """Search, then confirm. Raises the errors of ``Arena.play`` and ``Proposer.edits``."""
        incumbent = self.tree.incumbent
        winners = {name: await self._search_slot(name) for name in self._slots}
        won = {name: winner for name, winner in winners.items() if winner is not incumbent}
        if len(won) > 1:
            templates = dict(incumbent.templates) | {name: winner.templates[name] for name, winner in won.items()}
            together = self.tree.add(templates, None, incumbent, f"the winners for {', '.join(won)} together")
            self.winner, _ = await self._race(Stage("together", tuple(won)), [incumbent, together, *won.values()])
        elif won:
            (self.winner,) = won.values()
        if self.winner is not incumbent:
            await self._confirm()
        logger.info("%s", self.sentence())
        logger.info("%d of %d rollouts spent, %d failed", self.arena.spent, self.plan.budget, self.arena.failed)

    async def _search_slot(self, name: str) -> Candidate:
        entrants, generation = self.tree.entrants(name), 0
        while True:
            leader, played = await self._race(Stage(f"{name}-{generation}", (name,)), entrants)
            if self._proposer is None or generation == self.plan.generations:
                return leader
            slot, count = self._slots[name], self.plan.edits
            entrants = [leader, *await self._proposer.edits(self.tree, slot, leader, played, count)]
            if len(entrants) == 1:
                self._races_left -= self.plan.generations - generation
                return leader
            generation += 1

    async def _race(self, stage: Stage, entrants: Sequence[Candidate]) -> tuple[Candidate, list[TaskResult]]:
        """(the winner, its results). A prompt without a rival plays some tasks for the proposer."""
        if len(entrants) == 1:
            (seen,) = await self.arena.play(stage, entrants, range(PREVIEW_TASKS if self._proposer else 0))
            return entrants[0], seen
        size, played = len(self.arena.workload.tasks(stage, 0, entrants[0])), [list[TaskResult]() for _ in entrants]

        async def play(left: Sequence[int], numbers: range) -> np.ndarray:
            logger.info("race %s: %d prompts play %d tasks", stage.name, len(left), len(numbers))
            found = await self.arena.play(stage, [entrants[index] for index in left], numbers)
            for number, of_one in zip(left, found, strict=True):
                played[number] += of_one
            return _rewards(found)

        share = (self.plan.budget // 2 - self.arena.spent) // self._races_left
        self._races_left -= 1
        index, rewards = await successive_halving(len(entrants), share // size, play)
        winner, spent = entrants[index], self.arena.spent
        logger.info("race %s: %s wins; %d of %d rollouts spent", stage.name, winner.name, spent, self.plan.budget)
        for one, of_one in zip(entrants, rewards, strict=True):
            known = _known(of_one)
            mean = _mean(np.array(known), self.arena.workload.bounds) if known else None
            won = one is winner
            self.races.append(
                {"race": stage.name, "number": one.number, "tasks": len(of_one), "reward": mean, "won": won}
            )
        return winner, played[index]

    async def _confirm(self) -> None:
        winner, incumbent = self.winner, self.tree.incumbent
        differing = [name for name in self._slots if winner.templates.get(name) != incumbent.templates.get(name)]
        stage = Stage("held-out", tuple(differing), held_out=True)
        size = len(self.arena.workload.tasks(stage, 0, winner))
        tasks = (self.plan.budget - self.arena.spent) // (2 * size)
        logger.info("held-out tasks: %s and %s play %d", winner.name, incumbent.name, tasks)
        found = await self.arena.play(stage, [winner, incumbent], range(tasks))
        self.verdict = judge(_rewards(found), self.plan.disjoint_intervals, self.arena.workload.bounds)
        known = [(first, ours) for ours, first in zip(*found, strict=True) if math.isfinite(ours.reward + first.reward)]
        self.examples = max(known, key=lambda pair: pair[1].reward - pair[0].reward, default=None)

    def sentence(self) -> str:
        """The result in one sentence."""
        verdict, name = self.verdict, self.winner.name
        if not self.winner.number:
            return "no prompt is better than the baseline, #0"
        if verdict is None:
            return f"no result: no held-out task finished for both prompt {name} and the baseline, #0"
        means = (verdict.challenger, verdict.incumbent, verdict.difference)
        ours, first, difference = (value_text(mean, 2) for mean in means)
        return (
            f"prompt {name} {verdict.claim}: mean reward {ours} against {first}, difference {difference}, on "
            f"{verdict.tasks} held-out tasks"
        )


def _rewards(played: Sequence[Sequence[TaskResult]]) -> np.ndarray:
    """Shape (tasks, candidates)."""
    return np.array([[one.reward for one in of_one] for of_one in played]).T


def _known(rewards: Sequence[float]) -> list[float]:
    return [reward for reward in rewards if not math.isnan(reward)]
