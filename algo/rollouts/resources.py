"""What runners are told of a run's policy, as resources in the hub; their fields: ``store.schema.PolicyResources``."""

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
    """What runners are told about the policies of a run.

    run_id: names the resources, unlike those of any other run. model, endpoints, version: of the trained policy; of one
        without endpoints runners need the tokenizer alone, in the folder ``model``. policies: the run's table.
    published: further fields, of the workload.
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
