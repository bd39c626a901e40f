"""Actions of seats: votes compared with the expert's odds, kills, checks, claims, survival; by player and side."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import Literal

from algo.evaluation.games import GameRow, SeatRow
from algo.evaluation.statistics import Estimate, Frozen, mean_by_cluster
from store.werewolf import SideName
from store.werewolf_study import SpeechRecord

VOTES_FOR_WOLVES, ODDS_OF_VOTES = "votes for a wolf, of those that name a seat", "expert odds of the named seat"
VOTE_SHARES = (
    VOTES_FOR_WOLVES,
    ODDS_OF_VOTES,
    "best odds of any seat",
    "odds of a random vote",
    "votes for a seat with the best odds",
    "pivotal votes for a wolf",
)
"""Figures of the votes to exile that name a seat."""
_SAME = 1e-9


class Actions(Frozen):
    """Actions of one player's seats of one side. games: in which it had a seat of the side.

    shares: means with intervals over deals; odds: the expert's chance of a wolf, from public events.
    counts: action -> value -> count, such as the role of each night's victim where the player had all wolf seats.
    """

    player: str
    side: SideName
    games: int
    shares: dict[str, Estimate]
    counts: dict[str, dict[str, int]]


def actions_of(rows: Iterable[GameRow], player: str, side: SideName, seed: int) -> Actions:
    """seed: of the resampling of deals."""
    played = [row for row in rows if player in row.players_of(side)]
    values: defaultdict[str, list[tuple[int, float]]] = defaultdict(list)
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for row in played:
        for seat, what, found in seat_actions(row):
            if (seat.player, seat.side) == (player, side):
                if isinstance(found, str):
                    counts[what][found] += 1
                else:
                    values[what].append((row.cluster, found))
    shares = {what: mean_by_cluster(*map(list, zip(*of, strict=True)), seed) for what, of in values.items()}
    return Actions(
        player=player,
        side=side,
        games=len(played),
        shares=shares,
        counts={what: dict(sorted(of.items())) for what, of in sorted(counts.items())},
    )


def seat_actions(row: GameRow) -> Iterator[tuple[SeatRow, str, float | str]]:
    """(seat, action, value): numbers are averaged, texts counted."""
    seats = {seat.seat: seat for seat in row.seats}

    def role_of(target: int | None) -> str:
        return "nobody" if target is None else seats[target].role

    for vote in row.votes:
        seat = seats[vote.seat]
        if vote.target is None:
            yield seat, "votes", "abstained"
            continue
        on_wolf, odds = float(seats[vote.target].side == "wolf"), vote.odds or 0.0
        yield seat, "votes", "pivotal" if vote.pivotal else "not pivotal"
        *of_all, of_pivotal = VOTE_SHARES
        found = (on_wolf, odds, vote.best, vote.chance, float(odds > vote.best - _SAME))
        yield from ((seat, what, value) for what, value in zip(of_all, found, strict=True))
        if vote.pivotal:
            yield seat, of_pivotal, on_wolf
    if len(row.players_of("wolf")) == 1:
        wolf = next(seat for seat in row.seats if seat.side == "wolf")
        yield from ((wolf, "kills", role_of(kill.target)) for kill in row.kills)
    yield from ((seats[check.seat], "checks", role_of(check.target)) for check in row.checks)
    for speech in row.speeches:
        seat = seats[speech.seat]
        yield seat, f"roles that the {seat.role} claims", speech.claimed or "none"
        yield seat, f"claims of the {seat.role}", truth_of(speech, row)
        for target, side in speech.reports:
            yield seat, f"checks reported by the {seat.role}", str(_is_of(seats, target, side)).lower()
    yield from ((seat, f"{seat.role} alive at the end", float(seat.seat not in row.deaths)) for seat in row.seats)


def truth_of(speech: SpeechRecord, row: GameRow) -> Literal["true", "false", "none"]:
    """Whether the claimed role and the reported checks of a speech are all true; none: no claim."""
    seats = {seat.seat: seat for seat in row.seats}
    claims = [] if speech.claimed is None else [speech.claimed == seats[speech.seat].role]
    claims += [_is_of(seats, seat, side) for seat, side in speech.reports]
    return "none" if not claims else "true" if all(claims) else "false"


def _is_of(seats: dict[int, SeatRow], seat: int, side: str) -> bool:
    return seat in seats and seats[seat].side == side
