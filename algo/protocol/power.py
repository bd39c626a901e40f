"""How many deals it takes to see a difference: said before a run, not after it."""

from collections.abc import Sequence

from algo.evaluation.statistics import POWER, deals_needed, difference_seen, half_width
from configs.roles_and_decks import Role, Side


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
