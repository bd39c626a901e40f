"""What a row's reward is compared with: the group's other rollouts, its role's past, or its side in the whole batch.

Also whether there is anything to compare: an estimator is only asked about rewards of which it can tell better from
worse (``estimators.token_advantages``).
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

import torch

from algo.advantages.registry import needs_groups, needs_values, takes
from algo.advantages.role_baseline import ROLE_BASELINE, Baseline, RoleBaselines
from algo.sequences.actor_rows import ActorRow
from configs.training import AdvantageConfig

EQUAL_WITHIN = 1e-6
"""Rewards no further apart than this count as equal: verl's estimators compute in float32, where a smaller difference
is rounding error, and GRPO would divide it by a deviation as small."""


@dataclass(frozen=True)
class Comparison:
    """What a row can be compared with.

    by_outcome: whether the estimator can tell its O (see ``estimators``) from others.
    by_turn: whether its turn rewards are compared on their own, and differ from others.
    turn_means: m, by question. deviation: s.
    baseline: of its role; None with other estimators than role_baseline.
    """

    by_outcome: bool
    by_turn: bool = False
    turn_means: Mapping[str, float] = field(default_factory=dict)
    deviation: float = 1.0
    baseline: Baseline | None = None


def comparisons(
    rows: Sequence[ActorRow],
    groups: dict[str, list[ActorRow]],
    one_game: set[str],
    config: AdvantageConfig,
    role_baselines: RoleBaselines | None,
) -> tuple[list[Comparison], dict[str, float]]:
    """For each row what it is compared with, and the baselines as metrics."""
    if config.estimator == ROLE_BASELINE:
        assert role_baselines is not None
        return _against_roles(rows, config, role_baselines)
    if needs_groups(config.estimator):
        by_group = {
            name: Comparison(False) if name in one_game else _within_group(members, config)
            for name, members in groups.items()
        }
        return [by_group[row.group] for row in rows], {}
    by_side = {row.side: [other for other in rows if other.side == row.side] for row in rows}
    tells = {side: _returns_differ(members, config) for side, members in by_side.items()}
    return [Comparison(tells[row.side]) for row in rows], {}


def _within_group(members: Sequence[ActorRow], config: AdvantageConfig) -> Comparison:
    turns = _rewards_by_question(members)
    divides = config.normalize_by_std and takes(config.estimator, "norm_adv_by_std_in_grpo")
    outcomes_differ = not equal(row.outcome for row in members)
    outcomes = torch.tensor([row.outcome - row.kl_penalty for row in members])
    return Comparison(
        by_outcome=outcomes_differ,
        by_turn=not all(map(equal, turns.values())),
        turn_means={question: fmean(rewards) for question, rewards in turns.items()},
        deviation=outcomes.std().item() if divides and outcomes_differ else 1.0,
    )


def _against_roles(
    rows: Sequence[ActorRow], config: AdvantageConfig, role_baselines: RoleBaselines
) -> tuple[list[Comparison], dict[str, float]]:
    by_role: dict[str, list[ActorRow]] = defaultdict(list)
    for row in rows:
        by_role[row.role].append(row)
    outcomes = {role: [row.outcome - row.kl_penalty for row in members] for role, members in by_role.items()}
    turns = {role: _rewards_by_question(members) for role, members in by_role.items()}
    baselines = role_baselines.compare(outcomes)
    of_questions = role_baselines.compare(
        {f"{role}/{question}": rewards for role, asked in turns.items() for question, rewards in asked.items()}
    )
    comparisons = {}
    for role in by_role:
        baseline = baselines[role]
        means = {question: of_questions[f"{role}/{question}"].mean for question in turns[role]}
        divides = config.normalize_by_std and baseline.deviation > EQUAL_WITHIN
        comparisons[role] = Comparison(
            by_outcome=_differ_from(outcomes[role], baseline.mean),
            by_turn=any(_differ_from(rewards, means[question]) for question, rewards in turns[role].items()),
            turn_means=means,
            deviation=baseline.deviation if divides else 1.0,
            baseline=baseline,
        )
    metrics = {f"advantage/baseline/{role}": baseline.mean for role, baseline in baselines.items()}
    metrics |= {f"advantage/deviation/{role}": baseline.deviation for role, baseline in baselines.items()}
    return [comparisons[row.role] for row in rows], metrics


def _rewards_by_question(rows: Sequence[ActorRow]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        for turn in row.turns:
            found[turn.question].append(turn.reward)
    return found


def _returns_differ(members: Sequence[ActorRow], config: AdvantageConfig) -> bool:
    """Whether an estimator that standardises over a side's tokens has anything to compare there."""
    if sum(row.tokens for row in members) < 2:
        return False
    if needs_values(config.estimator) or config.gamma < 1 or any(row.kl is not None for row in members):
        return True
    return not equal([row.outcome for row in members]) or any(turn.reward for row in members for turn in row.turns)


def equal(values: Iterable[float]) -> bool:
    """Whether values are all the same, rounding apart."""
    found = list(values)
    return not found or max(found) - min(found) <= EQUAL_WITHIN


def _differ_from(values: Iterable[float], baseline: float) -> bool:
    return any(abs(value - baseline) > EQUAL_WITHIN for value in values)
