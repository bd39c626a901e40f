"""Two policies by the protocol, deal by deal: what the deals decide is no difference between them."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from algo.protocol.report import Among, ProtocolReport, paired_difference, single_seat_games, whole_side_games
from algo.reports.intervals import Estimate
from algo.werewolf.game_statistics import mean_over_deals
from algo.werewolf.matches import SIDES
from store.schema import TRAINED_POLICY


@dataclass(frozen=True)
class Difference:
    """One figure of a report less that of another. deals: on which both have it. share: whether it is one of games."""

    what: str
    deals: int
    value: Estimate
    share: bool


def differences(report: ProtocolReport, other: ProtocolReport, among: Among) -> Iterator[Difference]:
    """``report`` less ``other``, each figure over the deals of both; intervals by resampling these deals.

    among: all games, or those without errors. Raises ValueError unless the terms are equal.
    """
    if report.digest != other.digest:
        raise ValueError(f"terms {report.digest} and {other.digest} differ: these reports cannot be compared")
    seed = report.terms.seed
    ours, theirs = ([game for game in each.games if among == "all" or game.without_errors] for each in (report, other))
    chosen = {
        f"side {side} against {opponent}": (side, partial(whole_side_games, opponent=opponent))
        for opponent in report.terms.opponents
        for side in SIDES
    }
    chosen |= {f"single seat, {side}": (side, single_seat_games) for side in SIDES}
    for where, (side, choose) in chosen.items():
        won, won_by_other = (choose(games, player=TRAINED_POLICY, side=side) for games in (ours, theirs))
        value = paired_difference(won, won_by_other, side, seed)
        if value is not None:
            deals = {game.deal for game in won} & {game.deal for game in won_by_other}
            yield Difference(f"games won, {where}", len(deals), value, share=True)
    figures, others = report.figures[among].by_deal, other.figures[among].by_deal
    for name, of in figures.items():
        both = [deal for deal in of if deal in others.get(name, {})]
        if both:
            value = mean_over_deals(both, [of[deal] - others[name][deal] for deal in both], seed)
            yield Difference(name, len(both), value, share="loss" not in name and "score" not in name)
