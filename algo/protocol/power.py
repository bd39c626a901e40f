"""How many deals it takes to see a difference: said before a run, not after it."""

import math
from collections.abc import Sequence
from statistics import NormalDist

from algo.reports.intervals import CONFIDENCE
from configs.roles_and_decks import Role, Side

POWER = 0.8
"""How often a difference of the stated size is to be found."""


def deals_needed(difference: float, share: float = 0.5) -> int:
    """Deals, each with one game of a side, with which two win rates that differ so much are told apart.

    Normal approximation of a two-sided test at 5 % between two independent evaluations: two players on the same deals
    need fewer, as far as the deals decide. share: about which the rates lie; 0.5 needs the most.
    Raises ValueError unless 0 < difference < 1 and 0 < share < 1.
    """
    if not (0 < difference < 1 and 0 < share < 1):
        raise ValueError(f"difference {difference} and share {share} must lie between 0 and 1")
    return math.ceil(2 * share * (1 - share) * (_reach() / difference) ** 2)


def difference_seen(deals: int, share: float = 0.5) -> float:
    """The smallest difference that so many deals show, likewise. Raises ValueError without deals."""
    if deals < 1:
        raise ValueError("no deals show no difference")
    return _reach() * math.sqrt(2 * share * (1 - share) / deals)


def half_width(deals: float, share: float = 0.5) -> float:
    """Half of the 95 % interval of one win rate over so many deals, one game each."""
    return NormalDist().inv_cdf((1 + CONFIDENCE) / 2) * math.sqrt(share * (1 - share) / deals)


def power_text(deals: int, deck: Sequence[Role], probed_deals: int) -> str:
    """What a run of so many deals can show, as it is told before the run and on its page.

    deck: the roles dealt, of whose seats one takes its turn to be the single one. probed_deals: as of the panel.
    """
    wolves = deals * sum(role.side is Side.WOLF for role in deck) / len(deck)
    single = {"good": deals - wolves, "wolf": wolves}
    widths = " and ".join(
        f"of the {side} side (about {count:.0f} deals) to ± {100 * half_width(max(1, count)):.0f}"
        for side, count in single.items()
    )
    return (
        f"{deals} deals: a win rate of one side against one opponent is known to ± {100 * half_width(deals):.0f} "
        f"points, and two such rates are told apart, {POWER:.0%} of the time, if they differ by "
        f"{100 * difference_seen(deals):.0f} points; 5 points need {deals_needed(0.05)} deals, 10 points "
        f"{deals_needed(0.1)}, fewer where both play the same deals; single seats {widths} points; beliefs are asked "
        f"on {min(deals, probed_deals)} deals"
    )


def _reach() -> float:
    normal = NormalDist()
    return normal.inv_cdf((1 + CONFIDENCE) / 2) + normal.inv_cdf(POWER)
