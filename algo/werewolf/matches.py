"""Sides, held-out deals, and what a game says to the league."""

from typing import get_args

from algo.league.results import Match
from algo.werewolf.tasks import held_out_deal
from store.schema import TRAINED_POLICY
from store.werewolf import ResultSpan, SideName

SIDES: tuple[SideName, ...] = get_args(SideName)
OTHER_SIDE: dict[SideName, SideName] = {"wolf": "good", "good": "wolf"}


def held_out_deals(count: int, seed: int) -> list[int]:
    """Seeds of ``count`` different deals, none of which any training run plays (``algo.werewolf.tasks.held_out_deal``).

    A seed decides who is dealt which role, and how ties fall. Different seeds may deal the same roles: there are 20
    ways to deal 5p_tiny, and millions of 12p_sheriff.
    """
    deals: dict[int, None] = {}
    number = 0
    while len(deals) < count:
        deals[held_out_deal(seed, number)] = None
        number += 1
    return list(deals)


def league_match(result: ResultSpan) -> Match | None:
    """What a game says of the learning policy and one other player, each of whom played a whole side; else None."""
    players = {side: {seat.policy for seat in result.seats if seat.side == side} for side in SIDES}
    for own, other in (SIDES, SIDES[::-1]):
        if players[own] == {TRAINED_POLICY} and len(players[other]) == 1 and players[other] != {TRAINED_POLICY}:
            score = 0.5 if result.result == "draw" else float(result.result == own)
            return Match(opponent=next(iter(players[other])), side=own, score=score)
    return None
