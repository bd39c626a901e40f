"""Baselines of rewards, and whether the comparison is informative.

A row is one actor of one rollout (``algo.sequences.actor_rows``). An estimator only gets rewards that it can compare:

- per group (grpo and its kin): with the rewards of the same side's actors in all rollouts of one task. GRPO divides
  the difference by the group's deviation (Shao et al., 2024, arXiv:2402.03300), Dr. GRPO does not (Liu et al., 2025,
  arXiv:2503.20783; ``advantage.normalize_by_std=false``).
- per role (role_baseline): with a running mean of the role's rewards in earlier steps, so that every rollout may have
  its own deal. The reinforcement baseline of Williams, 1992 (https://doi.org/10.1007/BF00992696), by role.
- per side (reinforce_plus_plus, Hu et al., 2025, arXiv:2501.03262; gae, Schulman et al., 2016, arXiv:1506.02438):
  returns are standardised over all tokens of the side.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import NamedTuple

import torch

from algo.advantages.registry import ESTIMATORS
from algo.sequences.actor_rows import ActorRow
from configs.sections.training import AdvantageConfig

EQUAL_WITHIN = 1e-6
"""Rewards within this difference count as equal: in verl's float32 it is a rounding error, which GRPO would divide by
an equally small deviation."""


class Baseline(NamedTuple):
    """A running baseline: the mean of earlier steps; in the first step that of its own rewards.

    deviation: root mean squared distance of rewards from their baselines. Unlike the mean it includes the current step:
    else the first deviating reward after many equal ones would be divided by almost zero.
    """

    mean: float
    deviation: float


@dataclass(frozen=True)
class Comparison:
    """The comparison of a row.

    by_outcome: whether the row's ``valued_outcome``, without KL penalties, can differ from its baseline.
    by_turn: whether its turn rewards are compared separately, and differ from their baselines.
    turn_means: m, by question. deviation: s of ``algo.advantages.credit``.
    mean: baseline of its role; 0 with other estimators than role_baseline.
    """

    by_outcome: bool
    by_turn: bool = False
    turn_means: Mapping[str, float] = field(default_factory=dict)
    deviation: float = 1.0
    mean: float = 0.0


class RoleBaselines:
    """Exponentially decaying mean and deviation of rewards by name (a role).

    In each step, with x the step's rewards of a name and d the decay:
    baseline b = mean of the steps before (first step: mean(x)), then
    variance <- d * variance + (1 - d) * mean((x - b)^2), mean <- d * mean + (1 - d) * mean(x);
    in the first step variance = mean((x - b)^2) and mean = mean(x).
    """

    def __init__(self, decay: float) -> None:
        """decay: weight of the past at each step, from 0 to less than 1."""
        self._decay = decay
        self._moments: dict[str, tuple[float, float]] = {}  # name -> mean, variance

    def compare(self, rewards: Mapping[str, Sequence[float]]) -> dict[str, Baseline]:
        """The baselines for a step's rewards, by name; then updates with them. Every name has at least one reward."""
        found: dict[str, Baseline] = {}
        for name, values in rewards.items():
            mean = fmean(values)
            baseline, variance = self._moments.get(name, (mean, None))
            distance = fmean((value - baseline) ** 2 for value in values)
            variance = distance if variance is None else self._mix(variance, distance)
            self._moments[name] = self._mix(baseline, mean), variance
            found[name] = Baseline(baseline, math.sqrt(variance))
        return found

    def _mix(self, past: float, present: float) -> float:
        return self._decay * past + (1 - self._decay) * present

    def state(self) -> dict[str, dict[str, float]]:
        """The state as JSON data, without the decay: name -> mean and variance."""
        return {name: {"mean": mean, "variance": variance} for name, (mean, variance) in self._moments.items()}

    @classmethod
    def from_state(cls, state: Mapping[str, Mapping[str, float]], decay: float) -> "RoleBaselines":
        """Restore a ``state``, with the configuration's decay. Raises KeyError for anything else."""
        restored = cls(decay)
        restored._moments = {name: (moments["mean"], moments["variance"]) for name, moments in state.items()}
        return restored


def equal(values: Iterable[float]) -> bool:
    """Whether all values are equal up to rounding."""
    found = list(values)
    return not found or max(found) - min(found) <= EQUAL_WITHIN


def within_group(members: Sequence[ActorRow], config: AdvantageConfig) -> Comparison:
    """The comparison of a group's rows, between rollouts."""
    if len({row.task_id for row in members}) == 1:
        return Comparison(False)
    turns: dict[str, list[float]] = defaultdict(list)
    for turn in (turn for row in members for turn in row.turns):
        turns[turn.question].append(turn.reward)
    divides = config.normalize_by_std and ESTIMATORS[config.estimator].divides
    outcomes_differ = not equal(row.outcome for row in members)
    outcomes = torch.tensor([row.outcome - row.kl_penalty for row in members])
    return Comparison(
        by_outcome=not equal(row.valued_outcome for row in members),
        by_turn=not all(map(equal, turns.values())),
        turn_means={question: fmean(rewards) for question, rewards in turns.items()},
        deviation=outcomes.std().item() if divides and outcomes_differ else 1.0,
    )


def within_side(members: Sequence[ActorRow], config: AdvantageConfig) -> Comparison:
    """The comparison of a side's rows, for estimators that standardise returns over the side's tokens."""
    if sum(row.tokens for row in members) < 2:
        return Comparison(False)
    if ESTIMATORS[config.estimator].values or config.gamma < 1:
        return Comparison(True)
    return Comparison(
        not equal(row.outcome for row in members) or any(turn.reward for row in members for turn in row.turns)
    )


def against_roles(
    rows: Sequence[ActorRow], config: AdvantageConfig, role_baselines: RoleBaselines
) -> tuple[dict[str, Comparison], dict[str, float]]:
    """The comparison of each role with its running baseline, and metrics; updates the baselines with the rows."""
    members: dict[str, list[ActorRow]] = defaultdict(list)
    turns: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))  # role -> question -> rewards
    for row in rows:
        members[row.role].append(row)
        for turn in row.turns:
            turns[row.role][turn.question].append(turn.reward)
    baselines = role_baselines.compare(
        {role: [row.outcome - row.kl_penalty for row in members[role]] for role in members}
    )
    with_kl = any(row.kl is not None for row in rows)
    comparisons, deviations = {}, {}
    for role, baseline in baselines.items():
        outcomes, bare = [row.outcome for row in members[role]], baseline
        if with_kl:
            (bare,) = role_baselines.compare({f"{role} without KL": outcomes}).values()
        names = {f"{role}/{question}": question for question in turns[role]}
        found = role_baselines.compare({name: turns[role][question] for name, question in names.items()})
        asked = {names[name]: of for name, of in found.items()}
        squares = [of.deviation**2 for question, of in asked.items() for _ in turns[role][question]]
        # Where a role wins once after it has always lost, outcomes deviate by almost nothing: divided by that alone,
        # rewards of turns would be tens and hundreds.
        deviations[role] = max(baseline.deviation, math.sqrt(fmean(squares or [0.0])))
        divides = config.normalize_by_std and baseline.deviation > EQUAL_WITHIN
        comparisons[role] = Comparison(
            by_outcome=_differ_from((row.valued_outcome for row in members[role]), bare.mean),
            by_turn=any(_differ_from(turns[role][question], of.mean) for question, of in asked.items()),
            turn_means={question: of.mean for question, of in asked.items()},
            deviation=deviations[role] if divides else 1.0,
            mean=baseline.mean,
        )
    metrics = {f"advantage/baseline/{role}": baseline.mean for role, baseline in baselines.items()}
    return comparisons, metrics | {f"advantage/deviation/{role}": value for role, value in deviations.items()}


def _differ_from(values: Iterable[float], baseline: float) -> bool:
    return any(abs(value - baseline) > EQUAL_WITHIN for value in values)
