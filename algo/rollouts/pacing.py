"""How many groups may be in flight besides those that a step needs: as many as the servers have room for."""

import math
from dataclasses import dataclass

QUEUE_SHARE = 0.25
"""Requests that wait in vLLM, for each one that it works on, from which on it has enough to do."""


@dataclass(frozen=True)
class Load:
    """What the policy's servers have to do, all together, and whether runners are free.

    running, waiting: requests in vLLM that it works on, and that wait for their turn.
    slots: sequences that the servers decode at once.
    kv_cache: share of the KV cache that running requests hold, in the server where it is largest.
    unclaimed: rollouts in the hub that no runner has taken.
    """

    running: float
    waiting: float
    slots: float
    kv_cache: float
    unclaimed: int


def more_groups(load: Load, playing: int, fresh: int, room: int, fullest_kv_cache: float) -> tuple[int, str | None]:
    """How many groups more may be begun now; and why not more, where the load is what holds them back.

    playing: groups whose rollouts are not all played. fresh: those that are begun now in any case. room: how many more
    there may be by the lag. What plays fills the servers to some share; there may be so many as would fill them, if all
    are alike, but at most twice as many as there are, since the load of what was begun last may not show yet.
    """
    if room <= 0:
        return 0, None
    if load.unclaimed:
        return 0, f"{load.unclaimed} rollouts wait for a runner (start more, or with a higher --n)"
    if load.waiting > QUEUE_SHARE * load.running:
        return 0, f"{load.waiting:.0f} requests wait in vLLM behind {load.running:.0f}"
    shares = {
        f"their requests fill {load.kv_cache:.0%} of vLLM's KV cache": load.kv_cache / fullest_kv_cache,
        f"{load.running:.0f} of {load.slots:.0f} sequences are decoded at once": load.running / load.slots,
    }
    why, filled = max(shares.items(), key=lambda share: share[1])
    there = playing + fresh
    by_load = max(0, int(min(playing / filled if playing and filled else math.inf, 2 * there)) - there)
    return (room, None) if by_load >= room else (by_load, why if filled > 0.5 else None)
