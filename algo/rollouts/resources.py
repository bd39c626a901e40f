"""What runners are told of a run's policy, as resources in the hub; their fields: ``store.schema.PolicyResources``."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from configs.schema import Config
from store.endpoints import ServedPolicy
from store.schema import PolicyResources, Sampling


class ServedModel(Protocol):
    """Where a policy is served, and under which name (``store.schema.PolicyResources``)."""

    @property
    def endpoints(self) -> tuple[str, ...]: ...

    @property
    def model(self) -> str: ...


@dataclass(frozen=True)
class UnservedPolicy:
    """A policy of which runners need the tokenizer alone. model: the folder that has it."""

    model: str
    endpoints: tuple[str, ...] = ()


def policy_resources(
    config: Config,
    serving: ServedModel,
    policies: Iterable[ServedPolicy],
    run_id: str,
    version: int,
    published: Mapping[str, Any],
) -> PolicyResources:
    """What runners are told about the policies of a run.

    serving: the trained policy. policies: the run's table. run_id: names the resources, unlike those of any other run.
    published: further fields, of the workload.
    """
    return PolicyResources(
        run_name=run_id,
        version=version,
        endpoints=serving.endpoints,
        model=serving.model,
        sampling=Sampling(temperature=config.rollout.temperature, thinking=config.rollout.thinking),
        policies=tuple(policies),
        **published,
    )
