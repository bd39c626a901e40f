"""The resources of a run's policies for runners; for their fields see ``store.schema.PolicyResources``."""

from collections.abc import Iterable
from typing import Any

from configs.schema import Config
from store.endpoints import ServedPolicy
from store.schema import PolicyResources, Sampling


def policy_resources(
    config: Config,
    run_id: str,
    model: str,
    endpoints: tuple[str, ...] = (),
    version: int = 0,
    policies: Iterable[ServedPolicy] = (),
    **published: Any,
) -> PolicyResources:
    """The resources of a run's policies.

    run_id: unique name of the run's resources. model, endpoints, version: of the trained policy; without endpoints
        ``model`` is the folder of its tokenizer. policies: the run's table.
    published: additional fields of the workload.
    """
    return PolicyResources(
        run_name=run_id,
        version=version,
        endpoints=endpoints,
        model=model,
        sampling=Sampling(temperature=config.rollout.temperature, thinking=config.rollout.thinking),
        policies=tuple(policies),
        **published,
    )
