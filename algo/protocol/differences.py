"""Two policies by the protocol, game by game on the same deals: what the deals decide is no difference between them."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from algo.evaluation.statistics import Estimate, mean_by_cluster
from algo.protocol.report import (
    ODDS_OF_VOTES,
    VOTES_FOR_WOLVES,
    Among,
    ProtocolReport,
    paired_difference,
    single_seat_games,
    whole_side_games,
)
from algo.werewolf.matches import SIDES
from configs.sections.opponents import INITIAL_POLICY
from store.schema import TRAINED_POLICY


@dataclass(frozen=True)
class Difference:
    """One figure of a report less that of another.

    deals: on which both have it. share: whether it is one of shares, which are told in percentage points.
    """

    what: str
    deals: int
    value: Estimate
    share: bool


def differences(report: ProtocolReport, other: ProtocolReport, among: Among) -> Iterator[Difference]:
    """``report`` less ``other``, game by game where both played it; intervals by resampling the deals of these games.

    among: all games, or those without errors. Games against ``initial`` only where that was the same weights.
    Raises ValueError unless the terms are equal.
    """
    if report.digest != other.digest:
        raise ValueError(f"terms {report.digest} and {other.digest} differ: these reports cannot be compared")
    seed = report.terms.seed
    ours, theirs = ([game for game in each.games if among == "all" or game.without_errors] for each in (report, other))
    chosen = {
        f"side {side} against {opponent}": (side, partial(whole_side_games, opponent=opponent))
        for opponent in report.terms.opponents
        for side in SIDES
        if opponent != INITIAL_POLICY or report.initial == other.initial
    }
    chosen |= {f"single seat, {side}": (side, single_seat_games) for side in SIDES}
    for where, (side, choose) in chosen.items():
        won, won_by_other = (choose(games, player=TRAINED_POLICY, side=side) for games in (ours, theirs))
        value = paired_difference(won, won_by_other, side, seed)
        if value is not None:
            deals = {game.deal for game in won} & {game.deal for game in won_by_other}
            yield Difference(f"games won, {where}", len(deals), value, share=True)
    deal_of = {game.place: game.deal for game in ours}
    figures, others = report.figures[among].by_game, other.figures[among].by_game
    for name, of in figures.items():
        both = [place for place in of if place in others.get(name, {})]
        if both:
            deals = [deal_of[place] for place in both]
            value = mean_by_cluster(deals, [of[place] - others[name][place] for place in both], seed)
            yield Difference(name, len(set(deals)), value, share=name in (VOTES_FOR_WOLVES, ODDS_OF_VOTES))
