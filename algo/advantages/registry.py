"""The advantage estimators that can be used, by name, and what each needs."""

from dataclasses import dataclass

from configs.section import ConfigError

ROLE_BASELINE = "role_baseline"


@dataclass(frozen=True)
class Estimator:
    """groups: it compares the rollouts of a group, and says nothing about a single one. values: it needs a critic.

    returns: it matters where in a row a reward lies; to all others a row is worth the sum of its rewards.
    divides: it divides by a standard deviation where ``advantage.normalize_by_std`` is true.
    """

    groups: bool = False
    values: bool = False
    returns: bool = False
    divides: bool = False


ESTIMATORS = {
    **dict.fromkeys(("grpo", "grpo_vectorized", "grpo_passk", "gdpo"), Estimator(groups=True, divides=True)),
    **dict.fromkeys(("reinforce_plus_plus_baseline", "opo", "gpg"), Estimator(groups=True)),
    "reinforce_plus_plus": Estimator(returns=True),
    "gae": Estimator(values=True, returns=True),
    ROLE_BASELINE: Estimator(divides=True),
}
"""verl's by verl's names, and ``role_baseline``, which is ours."""

_ONE_ROW = "it leaves one row out of the baseline, while other actors of the same rollout stay in it"
_NO_SQUARES = "it needs the sum of squared probabilities at every token, which is not recorded"
_REFUSED = {
    "rloo": _ONE_ROW,
    "rloo_vectorized": _ONE_ROW,
    "remax": "it needs the reward of a greedily played copy of every game",
    "optimal_token_baseline": _NO_SQUARES,
    "tir_optimal_token_baseline": _NO_SQUARES,
}


def check_estimator(name: str) -> None:
    """Raise ConfigError, naming those that can be used, for any other estimator."""
    if name not in ESTIMATORS:
        reason = _REFUSED.get(name, "there is none of this name")
        raise ConfigError(
            f"advantage.estimator {name!r} cannot be used: {reason}. Choose one of {', '.join(sorted(ESTIMATORS))}"
        )


def needs_groups(name: str) -> bool:
    """Whether the estimator compares the rollouts of a group."""
    return name in ESTIMATORS and ESTIMATORS[name].groups


def needs_values(name: str) -> bool:
    """Whether the estimator needs a critic's values."""
    return name in ESTIMATORS and ESTIMATORS[name].values
