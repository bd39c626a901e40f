"""Rollouts in the hub that earlier processes of a run enqueued: which are there, and which may still be used."""

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass

from agentlightning import Rollout

from store.client import PatientStoreClient
from store.schema import VERSION_SEPARATOR
from store.token_spans import TaskKind

_ROLLOUTS_PER_PAGE = 500


@dataclass(frozen=True)
class Resumption:
    """Where a run goes on that was begun before.

    policy_version: of the weights that it goes on with. Updates beyond it are undone and made again, perhaps from other
        games, under the same numbers: what they played is of weights that are no more, and is played anew.
    number: how often the run has been gone on with, this time included.
    before: the policy versions of the earlier times, which undid updates likewise.
    """

    policy_version: int
    number: int
    before: tuple[int, ...] = ()

    def newest_version_of(self, number: int) -> int:
        """The newest version of a process's policy that is still that version. number: its own; 0 began the run."""
        return min((*self.before, self.policy_version)[number:], default=self.policy_version)


def version_of(rollout: Rollout) -> int:
    """The policy version with which a rollout was enqueued."""
    return int((rollout.resources_id or "").rpartition(VERSION_SEPARATOR)[2])


async def find_rollouts(
    client: PatientStoreClient, run_name: str, task_ids: Collection[str]
) -> dict[str, dict[str, Rollout]]:
    """The run's rollouts of these tasks, however they stand: task id -> rollout id -> it.

    They are looked for among all rollouts of the hub, the newest first: the protocol has no search by metadata.
    """
    found: dict[str, dict[str, Rollout]] = defaultdict(dict)
    offset, more = 0, True
    while more:
        page = await client.query_rollouts(
            sort_by="start_time", sort_order="desc", limit=_ROLLOUTS_PER_PAGE, offset=offset
        )
        known = len(found)
        for rollout in page:
            metadata = rollout.metadata or {}
            task_id = metadata.get("task_id", metadata.get("game_id"))  # the second by earlier versions
            if metadata.get("run") == run_name and task_id in task_ids:
                found[task_id][rollout.rollout_id] = rollout
        # What is enqueued meanwhile moves the rest to later pages: seen twice, never missed. Once all are found,
        # one more page is read, for what a request made twice may have left there.
        offset += len(page)
        more = len(page) == _ROLLOUTS_PER_PAGE and not len(found) == known == len(task_ids)
    return found


async def may_be_used(
    client: PatientStoreClient, kind: TaskKind, rollout: Rollout, newest_version: int, weights_change: bool
) -> bool:
    """Whether only weights up to ``newest_version`` have played, or will play, this rollout.

    weights_change: whether new weights may be served while rollouts go on (``rollout.max_policy_lag``); then only a
        finished one tells.
    """
    if version_of(rollout) > newest_version:
        return False
    if not weights_change:
        return True
    if rollout.status != "succeeded":
        return False
    spans = await client.query_spans(rollout.rollout_id)
    return all(kind.call.decode(span).newest_version <= newest_version for span in spans if kind.call.is_in(span))
