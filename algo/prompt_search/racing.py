"""Who is the best of many, at the least cost: successive halving with early exits, then a confirmation.

A race gives its budget in rounds: every candidate that is left does the same tasks, and then the better half goes on
(Karnin, Koren and Somekh, "Almost optimal exploration in multi-armed bandits", ICML 2013). Within a round a candidate
leaves as soon as another has been shown to be better on the tasks that both did (``intervals.PairwiseTests``); this is
Hoeffding racing (Maron and Moore, 1993) with sharper tests, which may look as often as they like. What an early exit
saves goes to the rounds that are left.

A race chooses; it claims nothing about its winner, which the best of many would owe to luck in part. The claim is made
by a ``Confirmation``: winner and incumbent on tasks that no race has seen, until the interval of their difference
leaves out zero or the budget is spent. That interval may be looked at all the time too, so equal candidates give a
winner with a probability of at most ``error / 2``, however many candidates raced.

Both are pure: ``ask`` says what is to be played, ``tell`` takes the rewards. A reward is NaN where a play failed; such
a task tells nothing about that candidate, and is left out of comparisons with it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from algo.prompt_search.intervals import Interval, PairwiseTests, confidence_sequence

Ending = Literal["clear", "halved", "budget"]
"""Why a comparison ended: its question was answered, or its budget spent. ``halved`` is of a race whose last rivals
were shown to be worse, while others left with the worse half of a round."""

_LOOKS_A_ROUND = 3
_LOOKS_AT_A_WINNER = 20
FEWEST_TASKS = 4
"""That each candidate must be able to do."""


@dataclass(frozen=True)
class Plays:
    """What is to be played: each of the candidates does each of the tasks.

    candidates: indices into those of the race. tasks: numbers, in order, none of which was asked for before.
    """

    candidates: tuple[int, ...]
    tasks: range

    @property
    def count(self) -> int:
        """Candidates times tasks."""
        return len(self.candidates) * len(self.tasks)


@dataclass
class Standing:
    """How one candidate fared. left: why it is out of the race, and when; empty for the winner and those still in."""

    rewards: list[float] = field(default_factory=list)
    left: str = ""


class Race:
    """Finds the best of two or more candidates.

    budget: plays that may be asked for. low, high: bounds of a reward.
    error: probability of an early exit of the best.
    """

    def __init__(self, candidates: int, budget: int, low: float = 0.0, high: float = 1.0, error: float = 0.05):
        if budget < candidates * FEWEST_TASKS:
            raise ValueError(
                f"{budget} plays are too few for a race of {candidates}: each must do at least {FEWEST_TASKS} tasks"
            )
        self.standings = [Standing() for _ in range(candidates)]
        self.spent = 0
        self.ending: Ending | None = None
        self._budget = budget
        self._tests = PairwiseTests(candidates, low, high, error)
        self._racing = list(range(candidates))
        self._tasks = 0
        self._left_in_round = 0
        self._has_halved = False

    @property
    def winner(self) -> int:
        """The only one left; before the end, the one that is ahead."""
        return self._ranked()[0]

    @property
    def racing(self) -> tuple[int, ...]:
        """Those that are left."""
        return tuple(self._racing)

    @property
    def tasks_done(self) -> int:
        """Tasks that those who are left have done."""
        return self._tasks

    def ask(self) -> Plays | None:
        """What is to be played now; None when the race is over."""
        if self.ending is not None:
            return None
        if self._left_in_round <= 0:
            self._begin_round()
        tasks = min(max(FEWEST_TASKS, math.ceil(self._of_round / _LOOKS_A_ROUND)), self._left_in_round)
        return Plays(tuple(self._racing), range(self._tasks, self._tasks + tasks))

    def tell(self, plays: Plays, rewards: np.ndarray) -> None:
        """rewards: of ``plays``, shape (tasks, candidates)."""
        for of_task in rewards:
            everyone = np.full(len(self.standings), np.nan)
            everyone[list(plays.candidates)] = of_task
            self._tests.add(everyone)
            for candidate, reward in zip(plays.candidates, of_task, strict=True):
                self.standings[candidate].rewards.append(float(reward))
        self.spent += plays.count
        self._tasks = plays.tasks.stop
        self._left_in_round -= len(plays.tasks)
        self._let_the_worse_go()
        if self._left_in_round <= 0 and len(self._racing) > 1:
            self._halve()

    def _begin_round(self) -> None:
        rounds_left = math.ceil(math.log2(len(self._racing)))
        share = (self._budget - self.spent) // rounds_left
        self._of_round = self._left_in_round = max(1, share // len(self._racing))

    def _let_the_worse_go(self) -> None:
        for candidate in list(self._racing):
            better = [other for other in self._racing if self._tests.better(other, candidate)]
            if better:
                self._racing.remove(candidate)
                self.standings[candidate].left = f"shown to be worse after {self._tasks} tasks"
        if len(self._racing) == 1:
            self.ending = "halved" if self._has_halved else "clear"

    def _halve(self) -> None:
        ranked = self._ranked()
        keep = math.ceil(len(ranked) / 2)
        self._has_halved = True
        for candidate in ranked[keep:]:
            self.standings[candidate].left = f"in the worse half after {self._tasks} tasks"
        self._racing = sorted(ranked[:keep])
        # The next round must give each of those left at least one task.
        if len(self._racing) > 1 and self._budget - self.spent < len(self._racing):
            for candidate in ranked[1:keep]:
                self.standings[candidate].left = f"not first when the budget was spent, after {self._tasks} tasks"
            self._racing = ranked[:1]
        if len(self._racing) == 1:
            self.ending = "budget"

    def _ranked(self) -> list[int]:
        """Those left, the best first; of equals the one named first, so that an incumbent is not replaced by chance."""
        return sorted(self._racing, key=lambda candidate: (-self._mean(candidate), candidate))

    def _mean(self, candidate: int) -> float:
        known = [reward for reward in self.standings[candidate].rewards if math.isfinite(reward)]
        return sum(known) / len(known) if known else -math.inf


@dataclass(frozen=True)
class Verdict:
    """What a confirmation found.

    better: the challenger's mean reward is higher than the incumbent's; False where that is not shown.
    worse: it is lower. difference: challenger less incumbent, on the tasks that both did.
    challenger, incumbent: each one's own mean reward.
    All intervals hold at all times: that of the difference with 1 - error, the two others together with 1 - error.
    """

    better: bool
    worse: bool
    ending: Ending
    difference: Interval
    challenger: Interval
    incumbent: Interval


class Confirmation:
    """Challenger and incumbent, candidates 0 and 1, on tasks that neither was chosen by.

    budget: plays of both. until_apart: go on with a better one until the intervals of the two do not touch, which takes
        longer than to know the sign of their difference.
    """

    def __init__(
        self, budget: int, low: float = 0.0, high: float = 1.0, error: float = 0.05, until_apart: bool = False
    ):
        if budget < 2 * FEWEST_TASKS:
            raise ValueError(f"{budget} plays are too few for a confirmation: each must do {FEWEST_TASKS} tasks")
        self.spent = 0
        self._budget = budget
        self._low, self._high, self._error = low, high, error
        self._until_apart = until_apart
        self._rewards: list[Sequence[float]] = []
        self._slice = max(FEWEST_TASKS, math.ceil(budget / 2 / _LOOKS_AT_A_WINNER))

    @property
    def tasks_done(self) -> int:
        """Tasks that both were given."""
        return len(self._rewards)

    def ask(self) -> Plays | None:
        """What is to be played now; None when the question is answered or the budget spent."""
        better, worse = self._shown(self._difference(points=2))
        if worse or (better and self._is_apart()):
            return None
        tasks = min(self._slice, (self._budget - self.spent) // 2)
        return Plays((0, 1), range(self.tasks_done, self.tasks_done + tasks)) if tasks else None

    def tell(self, plays: Plays, rewards: np.ndarray) -> None:
        """rewards: of ``plays``, shape (tasks, 2)."""
        self._rewards += rewards.tolist()
        self.spent += plays.count

    def verdict(self) -> Verdict:
        """What is known so far."""
        difference = self._difference()
        own = [
            confidence_sequence(one[np.isfinite(one)], self._low, self._high, self._error / 2)
            for one in self._table().T
        ]
        better, worse = self._shown(difference)
        return Verdict(better, worse, "clear" if better or worse else "budget", difference, own[0], own[1])

    def _is_apart(self) -> bool:
        if not self._until_apart:
            return True
        verdict = self.verdict()
        return verdict.challenger.low > verdict.incumbent.high

    def _table(self) -> np.ndarray:
        return np.asarray(self._rewards, dtype=float).reshape(-1, 2)

    def _difference(self, points: int = 500) -> Interval:
        """points: an even number, so that no difference is one of them."""
        table, width = self._table(), self._high - self._low
        both = table[np.isfinite(table).all(axis=1)]
        return confidence_sequence(both[:, 0] - both[:, 1], -width, width, self._error, points)

    @staticmethod
    def _shown(difference: Interval) -> tuple[bool, bool]:
        """(better, worse): bounds are ruled out themselves."""
        return difference.low >= 0, difference.high <= 0
