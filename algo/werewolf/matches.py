"""Sides, held-out deals, and matches for the league."""

from typing import get_args

from algo.league.results import Match
from algo.werewolf.tasks import held_out_deal
from store.schema import TRAINED_POLICY
from store.werewolf import ResultSpan, SideName

SIDES: tuple[SideName, ...] = get_args(SideName)
OTHER_SIDE: dict[SideName, SideName] = {"wolf": "good", "good": "wolf"}


def held_out_deals(count: int, seed: int) -> list[int]:
    """Seeds of ``count`` different deals, none of which any training run plays (``algo.werewolf.tasks.held_out_deal``).

    A seed determines the dealt roles and how ties are broken. Different seeds may deal the same roles: 5p_tiny has 20
    deals, 12p_sheriff millions.
    """
    deals: dict[int, None] = {}
    number = 0
    while len(deals) < count:
        deals[held_out_deal(seed, number)] = None
        number += 1
    return list(deals)


def league_match(result: ResultSpan) -> Match | None:
    """The match of the policy against one other player, each with a whole side; None for other games."""
    players = {side: {seat.policy for seat in result.seats if seat.side == side} for side in SIDES}
    for own, other in (SIDES, SIDES[::-1]):
        if players[own] == {TRAINED_POLICY} and len(players[other]) == 1 and players[other] != {TRAINED_POLICY}:
            score = 0.5 if result.result == "draw" else float(result.result == own)
            return Match(opponent=next(iter(players[other])), side=own, score=score)
    return None
