"""Credit by branching (``advantage.credit=branch``): what a decision changed, by games that go on from it.

A recorded game continues K times from before a decision, which the policy samples again. The recorded game and its
K branches are n = K + 1 continuations of one state, alike in distribution, so that all n decisions are trained on:

- V before the decision: the mean outcome of all n. V after it: the mean outcome of those that decided alike.
- The advantage of each of the n decisions is (V after - V before) * n / (n - 1). The factor makes the baseline that of
  the others: with V before as it is, an outcome would be compared with a part of itself.
- Turns after the decision have the advantage (outcome - V before) * n / (n - 1): a state that precedes them is a
  baseline without bias, and nearer than a deal or a role.
- Turns of the recorded game before the decision count V before as their outcome, the mean of n games that go on from
  them, and are compared as without branching.
- n games that share a past are one deal: from the decision on each has the weight 1 / n in the policy's loss, and
  1 / (n * m) after a second decision with m games.

No branch repeats the decision, which is no loss: m games after one fixed decision tell less about the policy's
gradient than m games with a decision each. From states of trees and vines: Schulman et al., 2015, arXiv:1502.05477;
Kazemnejad et al., 2024, arXiv:2410.01679 (VinePPO). Decisions of others at the same moment are held, as in
counterfactual baselines: Foerster et al., 2018, arXiv:1705.08926.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from operator import attrgetter
from statistics import fmean, pstdev
from typing import NamedTuple

from algo.advantages.registry import ESTIMATORS
from configs.section import ConfigError
from configs.sections.training import AdvantageConfig

Actor = tuple[str, str]
"""(task, actor's name)."""


@dataclass(frozen=True)
class Continuation:
    """A game that went on from a decision.

    choice: what was decided; equal for equal decisions.
    outcomes: reward for the outcome, by actor (``ActorReward.outcome``).
    later: actor -> number of its first turn after the decision, for actors that have one.
    """

    task_id: str
    choice: str
    outcomes: Mapping[str, float]
    later: Mapping[str, int]


@dataclass(frozen=True)
class Decision:
    """A recorded decision and the games that went on from it.

    moment: orders the decisions of a game. question: kind of decision. actor, turn: who decided, and the number of its
        first turn of the decision, the same in all continuations. continuations: the recorded game first.
    """

    moment: int
    question: str
    actor: str
    turn: int
    continuations: tuple[Continuation, ...]

    @property
    def recorded(self) -> str:
        """Task of the recorded game."""
        return self.continuations[0].task_id


class Credited(NamedTuple):
    """A decision's credit for an actor's turns. first: number of the first one. weight: of the turns in the loss."""

    first: int
    advantage: float
    weight: float


@dataclass(frozen=True)
class Worth:
    """What a recorded decision changed, in units of reward. games: number of continuations."""

    before: float
    after: float
    games: int


@dataclass(frozen=True)
class BranchCredit:
    """The credit that branches give a step's turns.

    branches: ids of the branches' tasks; they do not count in baselines of whole games.
    outcomes: actor of a recorded game -> by how much V before its first decision exceeds its outcome.
    advantages: actor -> credit of its turns, each up to the first turn of the next one, ascending.
    worths: (task, actor, turn) of each recorded decision.
    spreads: question -> mean standard deviation of outcomes after a decision was repeated.
    """

    branches: frozenset[str] = frozenset()
    outcomes: Mapping[Actor, float] = field(default_factory=dict)
    advantages: Mapping[Actor, Sequence[Credited]] = field(default_factory=dict)
    worths: Mapping[tuple[str, str, int], Worth] = field(default_factory=dict)
    spreads: Mapping[str, float] = field(default_factory=dict)

    def advantage(self, task_id: str, actor: str, turn: int) -> float | None:
        """The advantage of a turn by the latest decision at or before it; None without one."""
        latest = self._latest(task_id, actor, turn)
        return latest.advantage if latest else None

    def weight(self, task_id: str, actor: str, turn: int) -> float:
        latest = self._latest(task_id, actor, turn)
        return latest.weight if latest else 1.0

    def _latest(self, task_id: str, actor: str, turn: int) -> Credited | None:
        found = [one for one in self.advantages.get((task_id, actor), ()) if one.first <= turn]
        return found[-1] if found else None


NO_BRANCHES = BranchCredit()


def branch_credit(decisions: Iterable[Decision]) -> BranchCredit:
    """The credit of all turns of recorded games and their branches, by the formulas above.

    Of several decisions of one game the latest is first: V before it is the recorded game's outcome for the earlier
    ones.
    """
    branches: set[str] = set()
    values: dict[Actor, float] = {}
    own: dict[Actor, float] = {}
    advantages: dict[Actor, list[Credited]] = defaultdict(list)
    worths: dict[tuple[str, str, int], Worth] = {}
    spreads: dict[str, list[float]] = defaultdict(list)
    latest_first = sorted(decisions, key=lambda decision: decision.moment, reverse=True)
    for number, decision in enumerate(latest_first):
        recorded, count = decision.continuations[0], len(decision.continuations)
        branches.update(one.task_id for one in decision.continuations[1:])
        if count < 2:
            continue
        weight = 1 / prod(len(one.continuations) for one in latest_first[number:] if one.recorded == decision.recorded)
        for actor, outcome in recorded.outcomes.items():
            own[recorded.task_id, actor] = outcome
            found = [values.get((one.task_id, actor), one.outcomes[actor]) for one in decision.continuations]
            before, scale = fmean(found), count / (count - 1)
            alike: dict[str, list[float]] = defaultdict(list)
            for one, value in zip(decision.continuations, found, strict=True):
                alike[one.choice].append(value)
                if actor in one.later:
                    advantages[one.task_id, actor].append(Credited(one.later[actor], scale * (value - before), weight))
            if actor == decision.actor:
                for one in decision.continuations:
                    after = fmean(alike[one.choice])
                    advantages[one.task_id, actor].append(Credited(decision.turn, scale * (after - before), weight))
                after = fmean(alike[recorded.choice])
                worths[recorded.task_id, actor, decision.turn] = Worth(before, after, count)
                spreads[decision.question].append(pstdev(found))
            values[recorded.task_id, actor] = before
    return BranchCredit(
        branches=frozenset(branches),
        outcomes={key: value - own[key] for key, value in values.items()},
        # At the same turn the latest decision is last.
        advantages={key: sorted(found[::-1], key=attrgetter("first")) for key, found in advantages.items()},
        worths=worths,
        spreads={question: fmean(values) for question, values in spreads.items()},
    )


def check_branching(config: AdvantageConfig) -> None:
    """Raise ConfigError for an estimator whose advantages are not one outcome less a baseline."""
    estimator = ESTIMATORS[config.estimator]
    if config.credit == "branch" and (estimator.values or estimator.returns):
        usable = [name for name, one in ESTIMATORS.items() if not (one.values or one.returns or one.scales)]
        raise ConfigError(
            f"advantage.credit=branch compares outcomes, but advantage.estimator={config.estimator} sums rewards by "
            f"token: use one of {', '.join(sorted(usable))}"
        )
