"""The search: a race for each prompt, edits and further races, the winners together, then one confirmation.

A race is successive halving (Karnin, Koren and Somekh, "Almost optimal exploration in multi-armed bandits", ICML 2013):
in each round all prompts that are left do the same new tasks, and the better half goes on. It chooses and claims
nothing, since the best of many owes its mean to luck in part. The claim is made once, with a number of held-out tasks
that is fixed before they are played: winner and first prompt do the same ones, and the winner is better where the 95 %
interval of the paired difference lies above zero.
"""

import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from algo.evaluation.page import value_text
from algo.evaluation.statistics import Estimate, mean_by_cluster, paired_difference
from algo.prompt_search.arena import Arena, Played
from algo.prompt_search.plan import FIRST_LOOK, SearchPlan
from algo.prompt_search.prompts import Candidate, Slots, Tree
from algo.prompt_search.proposer import Proposer
from algo.prompt_search.tasks import Stage

logger = logging.getLogger("algo.find_best_prompt")

_SEED = 1
"""Of the resampling behind intervals."""


@dataclass(frozen=True)
class Standing:
    """One candidate in a race: tasks that it did, its mean reward (None where all failed), and whether it won."""

    race: str
    number: int
    tasks: int
    reward: Estimate | None
    won: bool


@dataclass(frozen=True)
class Verdict:
    """What the confirmation found. tasks: that both did. difference: challenger less incumbent, on these.

    better: the challenger has the higher mean; worse: the lower one; neither where that is not shown.
    """

    better: bool
    worse: bool
    tasks: int
    difference: Estimate
    challenger: Estimate
    incumbent: Estimate


@dataclass
class Findings:
    """What a search found.

    winner: number of the candidate that was chosen. verdict: of its confirmation; None where the incumbent won, or both
    finished no held-out task. examples: of a held-out task that the two did most differently, (incumbent, winner).
    """

    winner: int = 0
    verdict: Verdict | None = None
    races: list[Standing] = field(default_factory=list)
    spent: int = 0
    failed: int = 0
    examples: tuple[Played, Played] | None = None

    @property
    def confirmed(self) -> bool:
        return self.verdict is not None and self.verdict.better

    def sentence(self) -> str:
        verdict = self.verdict
        if not self.winner:
            return "no prompt was found that does better than the first one, #0"
        if verdict is None:
            return f"whether prompt #{self.winner} is better than #0 is not known: no held-out task finished"
        claim = "is worse than #0; keep #0" if verdict.worse else "is not clearly better than #0"
        claim = "is better than #0" if verdict.better else claim
        means = (verdict.challenger, verdict.incumbent, verdict.difference)
        ours, first, difference = (value_text(mean, 2) for mean in means)
        return (
            f"prompt #{self.winner} {claim}: mean reward {ours} against {first}, difference {difference}, on "
            f"{verdict.tasks} held-out tasks"
        )


Play = Callable[[Sequence[int], range], Awaitable[np.ndarray]]
"""Takes candidates' indices and tasks' numbers; returns rewards, shape (tasks, candidates), NaN for failures."""


async def halve(candidates: int, budget: int, play: Play) -> tuple[int, list[list[float]]]:
    """(index of the winner, rewards of each candidate). budget: plays, one being one candidate's doing of one task.

    Each round gets an equal share of the budget that is left. Of equals the one named first goes on, so that an
    incumbent is not replaced by chance.
    """
    rewards: list[list[float]] = [[] for _ in range(candidates)]
    left, done = list(range(candidates)), 0

    def mean(candidate: int) -> float:
        known = _known(rewards[candidate])
        return sum(known) / len(known) if known else -math.inf

    while len(left) > 1 and budget >= len(left):
        tasks = max(1, budget // math.ceil(math.log2(len(left))) // len(left))
        table = await play(left, range(done, done + tasks))
        for candidate, column in zip(left, table.T, strict=True):
            rewards[candidate] += column.tolist()
        budget -= table.size
        done += tasks
        left = sorted(sorted(left, key=lambda one: (-mean(one), one))[: math.ceil(len(left) / 2)])
    return max(left, key=lambda one: (mean(one), -one)), rewards


def judge(rewards: np.ndarray, apart: bool = False) -> Verdict | None:
    """What held-out tasks show. rewards: of challenger and incumbent, shape (tasks, 2); None without a task of both.

    apart: better takes, besides, that the intervals of the two do not touch.
    """
    both = rewards[np.isfinite(rewards).all(axis=1)]
    columns = [dict(enumerate(column)) for column in both.T.tolist()]
    difference = paired_difference(*columns, _SEED)
    if difference is None:
        return None
    challenger, incumbent = (mean_by_cluster(list(one), list(one.values()), _SEED) for one in columns)
    better = difference.low > 0 and not (apart and challenger.touches(incumbent))
    return Verdict(better, difference.high < 0, len(both), difference, challenger, incumbent)


class Search:
    """One search. slots: the prompts searched, one at a time and then together. proposer: None for no edits."""

    def __init__(self, plan: SearchPlan, slots: Slots, tree: Tree, arena: Arena, proposer: Proposer | None):
        self.findings = Findings()
        self._plan = plan
        self._slots = slots
        self._tree = tree
        self._arena = arena
        self._proposer = proposer
        self._races_left = plan.races(slots, tree)

    async def run(self) -> Findings:
        """Search, then confirm. Raises what ``Arena.play`` and ``Proposer.edits`` do."""
        incumbent, findings = self._tree.incumbent, self.findings
        winners = {name: await self._search_slot(name) for name in self._slots}
        won = {name: winner for name, winner in winners.items() if winner is not incumbent}
        best = next(iter(won.values()), incumbent)
        if len(won) > 1:
            templates = dict(incumbent.templates) | {name: winner.templates[name] for name, winner in won.items()}
            together = self._tree.add(templates, None, incumbent, f"the winners for {', '.join(won)} together")
            entrants = {one.number: one for one in (incumbent, together, *won.values())}
            best, _ = await self._race(Stage("together", None), list(entrants.values()))
        findings.winner = best.number
        if best is not incumbent:
            await self._confirm(best)
        findings.spent, findings.failed = self._arena.spent, self._arena.failed
        logger.info("%s", findings.sentence())
        logger.info("%d of %d rollouts spent, %d failed", findings.spent, self._plan.budget, findings.failed)
        return findings

    async def _search_slot(self, name: str) -> Candidate:
        entrants, stage = self._tree.entrants(name), Stage(f"{name}-0", name)
        leader, played = self._tree.incumbent, list[Played]()
        if len(entrants) > 1:
            leader, played = await self._race(stage, entrants)
        for generation in range(1, self._plan.generations + 1) if self._proposer else ():
            if not played:
                (played,) = await self._arena.play(stage, [leader], range(FIRST_LOOK))
            children = await self._proposer.edits(self._tree, self._slots[name], leader, played, self._plan.edits)
            if not children:
                self._races_left -= self._plan.generations - generation + 1
                break
            stage = Stage(f"{name}-{generation}", name)
            leader, played = await self._race(stage, [leader, *children])
        return leader

    async def _race(self, stage: Stage, entrants: Sequence[Candidate]) -> tuple[Candidate, list[Played]]:
        """(the winner, what it played)."""
        size, played = len(self._arena.workload.tasks(stage, 0, entrants[0])), [list[Played]() for _ in entrants]
        share = (self._plan.budget // 2 - self._arena.spent) // max(1, self._races_left)
        self._races_left -= 1

        async def play(left: Sequence[int], numbers: range) -> np.ndarray:
            logger.info("race %s: %d prompts do %d tasks", stage.name, len(left), len(numbers))
            found = await self._arena.play(stage, [entrants[index] for index in left], numbers)
            for number, of_one in zip(left, found, strict=True):
                played[number] += of_one
            return _rewards(found)

        index, rewards = await halve(len(entrants), share // size, play)
        winner, spent = entrants[index], self._arena.spent
        logger.info("race %s: %s wins; %d of %d rollouts spent", stage.name, winner.name, spent, self._plan.budget)
        for one, of_one in zip(entrants, rewards, strict=True):
            known = _known(of_one)
            mean = mean_by_cluster(range(len(known)), known, _SEED) if known else None
            self.findings.races.append(Standing(stage.name, one.number, len(of_one), mean, one is winner))
        return winner, played[index]

    async def _confirm(self, winner: Candidate) -> None:
        incumbent = self._tree.incumbent
        differing = [name for name in self._slots if winner.templates.get(name) != incumbent.templates.get(name)]
        stage = Stage("held-out", differing[0] if len(differing) == 1 else None, held_out=True)
        size = len(self._arena.workload.tasks(stage, 0, winner))
        tasks = (self._plan.budget - self._arena.spent) // (2 * size)
        logger.info("held-out tasks: %s and %s do %d", winner.name, incumbent.name, tasks)
        found = await self._arena.play(stage, [winner, incumbent], range(tasks))
        self.findings.verdict = judge(_rewards(found), self._plan.apart)
        pairs = zip(*reversed(found), strict=True)
        known = [(one, other) for one, other in pairs if not math.isnan(one.reward + other.reward)]
        self.findings.examples = max(known, key=lambda pair: pair[1].reward - pair[0].reward, default=None)


def _rewards(played: Sequence[Sequence[Played]]) -> np.ndarray:
    """Shape (tasks, candidates)."""
    return np.array([[one.reward for one in of_one] for of_one in played]).T


def _known(rewards: Sequence[float]) -> list[float]:
    return [reward for reward in rewards if not math.isnan(reward)]
