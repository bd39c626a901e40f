"""What tests often ask a hub for, by the client."""

from collections.abc import Iterable, Sequence
from typing import Any

from store.client import StoreClient
from store.protocol import AttemptedRollout, EnqueueRolloutRequest, Rollout, RolloutConfig, Span

RETRY = RolloutConfig(
    timeout_seconds=60, unresponsive_seconds=60, max_attempts=2, retry_condition=["failed", "timeout", "unresponsive"]
)


async def enqueue_one(client: StoreClient, input: Any, **fields: Any) -> Rollout:
    """Queue one rollout."""
    (rollout,) = await client.enqueue_many_rollouts([EnqueueRolloutRequest(input=input, **fields)])
    return rollout


async def enqueue_tasks(client: StoreClient, resources: Any, tasks: Iterable[Any], **fields: Any) -> list[str]:
    """Publish the resources and queue tasks with them; the rollouts' ids."""
    await client.update_resources(resources.resources_id, resources.encode())
    common = {"mode": "train", "resources_id": resources.resources_id} | fields
    requests = [EnqueueRolloutRequest(input=task.encode(), **common) for task in tasks]
    return [rollout.rollout_id for rollout in await client.enqueue_many_rollouts(requests)]


async def take(client: StoreClient, worker_id: str | None = None) -> AttemptedRollout | None:
    """The next rollout of the queue, if there is one."""
    return next(iter(await client.dequeue_many_rollouts(worker_id=worker_id)), None)


async def look_up(client: StoreClient, rollout_id: str) -> Rollout:
    """A rollout, with its latest attempt if it has any."""
    (rollout,) = await client.query_rollouts(rollout_id_in=[rollout_id])
    return rollout


def final_reward(spans: Sequence[Span]) -> Any:
    """The reward that agentlightning reads in spans."""
    from agentlightning import find_final_reward  # takes seconds

    return find_final_reward(spans)
