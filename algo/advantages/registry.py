"""The usable advantage estimators by name, and their requirements."""

from dataclasses import dataclass

from configs.section import ConfigError

ROLE_BASELINE = "role_baseline"


@dataclass(frozen=True)
class Estimator:
    """groups: compares the rollouts of a group, and has no baseline for a single one. values: needs a critic.

    returns: uses the positions of rewards in a row; others only their sum.
    divides: divides by a standard deviation with ``advantage.normalize_by_std``.
    scales: multiplies by a factor of the whole batch, which the rewards of turns do not share.
    """

    groups: bool = False
    values: bool = False
    returns: bool = False
    divides: bool = False
    scales: bool = False


ESTIMATORS = {
    **dict.fromkeys(("grpo", "grpo_vectorized"), Estimator(groups=True, divides=True)),
    "gdpo": Estimator(groups=True, divides=True, scales=True),
    "opo": Estimator(groups=True),
    **dict.fromkeys(("gpg", "reinforce_plus_plus_baseline"), Estimator(groups=True, scales=True)),
    "reinforce_plus_plus": Estimator(returns=True),
    "gae": Estimator(values=True, returns=True),
    ROLE_BASELINE: Estimator(divides=True),
}
"""verl's estimators, and our ``role_baseline``."""

_BEST_ROW = "the best and the second best row may be two actors of the same rollout, whose advantage would be 0"
_ONE_ROW = "its leave-one-out baseline excludes one row, but not other actors of the same rollout"
_NO_SQUARES = "it needs the sum of squared probabilities at every token, which is not recorded"
_REFUSED = {
    "rloo": _ONE_ROW,
    "rloo_vectorized": _ONE_ROW,
    "grpo_passk": _BEST_ROW,
    "remax": "it needs the reward of a greedy copy of every rollout",
    "optimal_token_baseline": _NO_SQUARES,
    "tir_optimal_token_baseline": _NO_SQUARES,
}


def check_estimator(name: str) -> None:
    """Raise ConfigError, with the usable ones, for any other estimator."""
    if name not in ESTIMATORS:
        reason = _REFUSED.get(name, "it does not exist")
        raise ConfigError(
            f"advantage.estimator {name!r} cannot be used: {reason}. Choose one of {', '.join(sorted(ESTIMATORS))}"
        )


def needs_groups(name: str) -> bool:
    """Whether the estimator compares the rollouts of a group."""
    return name in ESTIMATORS and ESTIMATORS[name].groups


def needs_values(name: str) -> bool:
    """Whether the estimator needs a critic's values."""
    return name in ESTIMATORS and ESTIMATORS[name].values
