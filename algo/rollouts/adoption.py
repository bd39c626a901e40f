"""Games in the hub that earlier processes of a run enqueued: which are there, and which of them may still be used."""

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass

from agentlightning import Rollout

from store.client import PatientStoreClient
from store.schema import VERSION_SEPARATOR
from store.spans import TurnSpan, is_turn

_ROLLOUTS_PER_PAGE = 500


@dataclass(frozen=True)
class Resumption:
    """Where a run goes on that was begun before.

    policy_version: of the weights that it goes on with. Updates beyond it are undone and made again, perhaps from other
        games, under the same numbers: what they played is of weights that are no more, and is played anew.
    number: how often the run has been gone on with, this time included.
    """

    policy_version: int
    number: int


def version_of(rollout: Rollout) -> int:
    """The policy version with which a game was enqueued."""
    return int((rollout.resources_id or "").rpartition(VERSION_SEPARATOR)[2])


async def find_games(
    client: PatientStoreClient, run_name: str, game_ids: Collection[str]
) -> dict[str, dict[str, Rollout]]:
    """The run's rollouts of these games, however they stand: game id -> rollout id -> it.

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
            if metadata.get("run") == run_name and metadata.get("game_id") in game_ids:
                found[metadata["game_id"]][rollout.rollout_id] = rollout
        # What is enqueued meanwhile moves the rest to later pages: seen twice, never missed. Once all games are found,
        # one more page is read, for what a request made twice may have left there.
        offset += len(page)
        more = len(page) == _ROLLOUTS_PER_PAGE and not len(found) == known == len(game_ids)
    return found


async def may_be_used(client: PatientStoreClient, rollout: Rollout, newest_version: int, weights_change: bool) -> bool:
    """Whether only weights up to ``newest_version`` have played, or will play, this game.

    weights_change: whether new weights may be served while games go on (``game.max_policy_lag``); then only a finished
        game tells.
    """
    if version_of(rollout) > newest_version:
        return False
    if not weights_change:
        return True
    if rollout.status != "succeeded":
        return False
    spans = await client.query_spans(rollout.rollout_id)
    return all(TurnSpan.decode(span).policy_version <= newest_version for span in spans if is_turn(span))
