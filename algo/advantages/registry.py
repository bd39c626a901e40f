"""What advantage estimators, verl's and ours, ask for, by their signatures. Brings no agentlightning along."""

import inspect

from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY

from algo.advantages import gae_by_turn, leave_rollout_out, role_baseline

OWN_ESTIMATORS = (gae_by_turn, leave_rollout_out, role_baseline)
"""The modules whose import registers ours beside verl's."""


def needs_groups(name: str) -> bool:
    """Whether the estimator compares the rollouts of a group, and so says nothing about a single rollout."""
    return takes(name, "index")


def needs_values(name: str) -> bool:
    """Whether the estimator needs a critic's values."""
    return requires(name, "values")


def takes(name: str, parameter: str) -> bool:
    """Whether an estimator has a parameter; False for one that is not registered."""
    return _parameter(name, parameter) is not None


def requires(name: str, parameter: str) -> bool:
    """Whether it has the parameter, and no default for it."""
    found = _parameter(name, parameter)
    return found is not None and found.default is inspect.Parameter.empty


def _parameter(name: str, parameter: str) -> inspect.Parameter | None:
    estimator = ADV_ESTIMATOR_REGISTRY.get(name)
    return None if estimator is None else inspect.signature(estimator).parameters.get(parameter)
