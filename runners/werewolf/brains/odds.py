"""Exact odds of every seat's role, given one seat's knowledge.

The weight of a set of wolves is the likelihood of the events under it: claims and reports, votes, deaths by night,
explosions and shots. Good roles are summed out by dynamic programming (forward and backward over the seats), so 12
seats take milliseconds.

The constants below are frequencies of scripted players. A seat's own knowledge and the rules count as certain; that a
running game has a living wolf, as nearly certain. Not used: under 屠边 both kinds of good cards live, under parity the
wolves are fewer than the others.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import combinations
from math import comb, log
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runners.werewolf.brains.memory import HIDDEN_GODS, TableMemory
from runners.werewolf.game import Event, EventKind, Role, Side

Odds = Mapping[int, Mapping[Role, float]]
"""Seat -> role -> probability; the sum over a seat is 1, over a role the number of its cards."""

IMPOSSIBLE, NEGLIGIBLE = 1e-9, 1e-7

# Probabilities that a seer did not claim its role in its first speech, and that another good seat claims it.
SEER_SILENT, OTHER_CLAIMS_SEER = 0.02, 0.003
POSING_WOLVES = (0.45, 0.15, 0.004)
"""Probability that no wolf claims to be the seer; that one given wolf alone does; that two given wolves or more do."""
# Reports of a wolf that claims to be the seer, about a good seat and about a mate.
FRAMES_GOOD, CLEARS_GOOD, FRAMES_MATE, CLEARS_MATE = 0.55, 0.4, 0.03, 0.5
CLAIMS_OWN_GOD, WOLF_CLAIMS_GOD, OTHER_CLAIMS_GOD = 0.4, 0.06, 0.004
# Relative frequencies of votes: of a wolf for a mate, of a good seat for a wolf; 1 for other targets.
WOLF_FOR_MATE, GOOD_FOR_WOLF = 0.3, 1.25
# Probability that a wolf's speech follows a mate's claim to be the seer, or another's; a good seat's: one half.
WOLF_BACKS_MATE, WOLF_BACKS_OTHER = 0.62, 0.38
# Relative frequency of a wolf's death by night, and probability that the seer survives a night after its claim. In a
# deck with a witch the first night's victim is no evidence, since wolves may attack their own on purpose.
WOLF_DIES_BY_NIGHT, SEER_SURVIVES = 0.2, 0.6


def role_odds(events: Iterable[Event], seat: int, deck: Sequence[Role]) -> Odds:
    """Role odds of each seat, given all that ``seat`` knows of a game.

    events: all that are visible to the seat (``Event.visible_to``), oldest first. deck: the roles dealt.
    Raises ValueError if the seat's role is not among the events.
    """
    events = tuple(events)
    own = [event for event in events if event.kind is EventKind.ROLE_DEALT and event.seat == seat]
    if not own:
        raise ValueError(f"the events lack the role of seat {seat}: pass all its events from the beginning")
    memory = TableMemory()
    memory.learn(events, seat, deck)
    odds = odds_of(memory, seat, Role(own[0].data["role"]))
    teams = (event for event in events if event.kind is EventKind.WOLF_TEAM and len(event.data) > 1)
    if team := next(teams, None):  # with a king, and the wolves know each other's cards
        kings = {seat: Role(name) for name in team.data if name != "seats" for seat in team.data[name].split(",")}
        cards = {mate: kings.get(str(mate), Role.WOLF) for mate in team.seats}
        known = {mate: {role: float(role is card) for role in odds[mate]} for mate, card in cards.items()}
        odds = {**odds, **known}
    return odds


def odds_of(memory: TableMemory, seat: int, role: Role, *, publicly: bool = False, all_roles: bool = True) -> Odds:
    """``role_odds`` from a seat's memory.

    publicly: the odds of a seat with ``role`` that knows only the public record, which a wolf pretends to hold.
    all_roles: without, only the odds of wolves and of the seer, for half of the work.
    """
    wolves = sum(count for other, count in memory.deck.items() if other.side is Side.WOLF)
    sets = _wolf_sets(memory.deck.total(), wolves)
    weight = np.zeros(len(sets))
    _weigh_public(memory, sets, weight, speaker=seat)
    known = {seat: role.side}
    if not publicly:
        known = dict.fromkeys(memory.team, Side.WOLF) | (memory.found if role is Role.SEER else {}) | known
    for other, side in known.items():
        _know(sets, weight, other, side)
    possible = weight > weight.max() + np.log(NEGLIGIBLE)
    return _sum_over_gods(memory, sets[possible], weight[possible], seat, role, all_roles)


@lru_cache(maxsize=16)
def _wolf_sets(seats: int, wolves: int) -> NDArray[np.bool_]:
    """All sets of wolves, shape (sets, seats)."""
    return np.array([[seat in chosen for seat in range(seats)] for chosen in combinations(range(seats), wolves)], bool)


def _know(sets: NDArray[np.bool_], weight: NDArray[np.float64], seat: int, side: Side) -> None:
    weight[sets[:, seat - 1] != (side is Side.WOLF)] += np.log(IMPOSSIBLE) * 4


def _weigh_public(memory: TableMemory, sets: NDArray[np.bool_], weight: NDArray[np.float64], speaker: int) -> None:
    """Add to ``weight``, shape (sets,), the log-likelihood of the events that depend on the set of wolves alone."""
    seats, wolves = sets.shape[1], int(sets[0].sum())
    is_wolf = {seat: sets[:, seat - 1] for seat in range(1, seats + 1)}
    for seat in memory.exploded:
        _know(sets, weight, seat, Side.WOLF)
    for seat, side in memory.proven.items():
        _know(sets, weight, seat, side)
    if not memory.over:
        # Nearly certain only: while a shot is pending, the last wolf may be dead in a running game.
        dead_wolves = sets[:, [seat - 1 for seat in sorted(memory.gone)]].sum(axis=1)
        weight += np.where(dead_wolves == wolves, np.log(IMPOSSIBLE), 0.0)
    # By whether the voter and whether the target is a wolf.
    good_for, wolf_for = np.array([1.0, GOOD_FOR_WOLF]), np.array([1.0, WOLF_FOR_MATE])
    by_good = good_for / (GOOD_FOR_WOLF * wolves + seats - 1 - wolves)
    of_vote = np.log([*by_good, *wolf_for / (WOLF_FOR_MATE * (wolves - 1) + seats - wolves)])
    for voter, target in memory.attacks:
        if voter not in (speaker, target):
            weight += of_vote.take(2 * is_wolf[voter] + is_wolf[target])
    for follower, followed in memory.followed.items():
        if follower != speaker and followed != follower and 1 <= followed <= seats:
            by_wolf = np.where(is_wolf[followed], WOLF_BACKS_MATE, WOLF_BACKS_OTHER)
            weight += np.log(np.where(is_wolf[follower], by_wolf, 0.5))
    poisoned = {seat for _, seat in memory.slain} | {memory.poisoned}
    for seat, (day, _) in memory.night_deaths.items():
        if day > 1 or not memory.deck[Role.WITCH]:
            weight += np.log(np.where(is_wolf[seat], 0.5 if seat in poisoned else WOLF_DIES_BY_NIGHT, 1.0))
    for seat, reports in memory.claims.items():
        of_reports = np.zeros(len(sets))
        for reported, side in reports.items():
            if 1 <= reported <= seats:
                of_mate, of_good = (FRAMES_MATE, FRAMES_GOOD) if side is Side.WOLF else (CLEARS_MATE, CLEARS_GOOD)
                of_reports += np.log(np.where(is_wolf[reported], of_mate, of_good))
        weight += np.where(is_wolf[seat], of_reports, 0.0)
    if memory.claims:
        posing = sets[:, [seat - 1 for seat in memory.claims]].sum(axis=1)
        weight += np.log(POSING_WOLVES)[np.minimum(posing, len(POSING_WOLVES) - 1)]
    for seat in memory.gods:
        weight += np.where(is_wolf[seat], np.log(WOLF_CLAIMS_GOD), 0.0)
    for seat in memory.pretenders:
        weight += np.where(is_wolf[seat], 0.0, np.log(0.05))
    if memory.shooters:
        kings = memory.deck[_king(memory)]
        placements = [comb(wolves - number, kings - number) if number <= kings else 0 for number in range(wolves + 1)]
        of_shooters = np.log(np.maximum(np.array(placements) / comb(wolves, kings), IMPOSSIBLE))
        weight += of_shooters[_shooters(memory, sets)]


def _shooters(memory: TableMemory, sets: NDArray[np.bool_]) -> NDArray[np.int_]:
    """Wolves that shot, by set of wolves; each of them is a wolf king."""
    return sets[:, [seat - 1 for seat in sorted(memory.shooters)]].sum(axis=1)


def _king(memory: TableMemory) -> Role:
    """The deck's wolf king; with both kings in the deck, the one that shoots."""
    return Role.WOLF_KING if memory.deck[Role.WOLF_KING] else Role.WHITE_WOLF_KING


def _log_of_good(memory: TableMemory, seat: int, role: Role) -> float:
    """Log-likelihood of the acts of ``seat`` given the good ``role``, without the seer's checks."""
    found = 0.0
    if seat in memory.claims and role is not Role.SEER:
        found += log(OTHER_CLAIMS_SEER)
    if role is Role.SEER:
        if seat in memory.unclaimed:
            found += log(SEER_SILENT)
        if seat in memory.claims and seat not in memory.night_deaths:
            nights = {day for day, _ in memory.night_deaths.values() if day > memory.claimed_on[seat]}
            found += len(nights) * log(SEER_SURVIVES)
    claimed = memory.gods.get(seat)
    if claimed is not None:
        found += log(CLAIMS_OWN_GOD if claimed is role else OTHER_CLAIMS_GOD)
    if seat in memory.shooters and role is not Role.HUNTER:
        found += log(IMPOSSIBLE)
    if memory.cards.get(seat, role) is not role:
        found += log(IMPOSSIBLE)
    return found


def _sum_over_gods(
    memory: TableMemory, sets: NDArray[np.bool_], weight: NDArray[np.float64], me: int, my_role: Role, all_roles: bool
) -> Odds:
    """Odds of roles from the weights of the sets of wolves, summed over all deals of the good roles."""
    seats = range(sets.shape[1])
    # Pairs of a set of wolves and a seer outside it; -1 without a seer in the deck.
    rows, seers = np.nonzero(~sets) if memory.deck[Role.SEER] else (np.arange(len(sets)), np.full(len(sets), -1))
    kept = (seers == me - 1) == (my_role is Role.SEER)
    rows, seers = rows[kept], seers[kept]
    is_wolf, is_seer = sets.T.take(rows, axis=1), np.arange(len(seats))[:, None] == seers
    of_seer = [0.0 if at + 1 == me else _log_of_good(memory, at + 1, Role.SEER) for at in seats]
    log_weight = weight[rows] + np.array([*of_seer, 0.0])[seers]
    for seer, reports in memory.claims.items():
        for reported, side in reports.items():
            if reported - 1 in seats:
                wrong = is_wolf[reported - 1] != (side is Side.WOLF)
                log_weight[is_seer[seer - 1] & wrong] += log(IMPOSSIBLE)
    pair_weight = np.exp(log_weight - log_weight.max())
    gods, king = [role for role in HIDDEN_GODS if memory.deck[role]], _king(memory)
    good = (*gods, Role.VILLAGER)
    factors = np.ones((len(seats), len(good)))
    for seat in {*memory.claims, *memory.gods, *memory.shooters, *memory.cards}:
        factors[seat - 1] = np.exp([_log_of_good(memory, seat, role) for role in good])
    factors[me - 1] = [role is my_role for role in good]
    # How the other good cards lie depends on the taken seats alone, which several pairs have in common: a case.
    bits = 2 ** np.arange(len(seats))
    taken = (sets @ bits)[rows] + np.append(bits, 0)[seers]
    cases, case_of = np.unique(taken, return_inverse=True)
    free_seats = np.nonzero(cases[:, None] & bits == 0)[1].reshape(len(cases), -1).T
    shares = factors.T[:, free_seats]
    # Axes of a table of weights: the number of seated cards of each god; the case. Seating moves along an axis.
    fewer = [(*[slice(None)] * role, slice(-1)) for role in range(len(gods))]
    more = [(*[slice(None)] * role, slice(1, None)) for role in range(len(gods))]

    def tables(places: Iterable[int], start: int, sources: list[Any], targets: list[Any]) -> list[NDArray[np.float64]]:
        """The table before the first of ``places`` and after each, which seats a god or a villager."""
        tables = [np.zeros((*(memory.deck[god] + 1 for god in gods), len(cases)))]
        tables[0][(start,) * len(gods)] = 1.0
        for place in places:
            tables.append(tables[-1] * shares[-1, place])
            for share, source, target in zip(shares[:-1, place], sources, targets, strict=True):
                tables[-1][target] += tables[-2][source] * share
        return tables

    places = range(len(free_seats))
    forward = tables(places, 0, fewer, more)
    total = pair_weight * forward[-1][(-1,) * len(gods)][case_of]
    whole = total.sum()
    wolves, kings = int(sets[0].sum()), memory.deck[king]
    shot = _shooters(memory, sets)[rows]
    hidden_king = np.maximum(kings - shot, 0) / np.maximum(wolves - shot, 1)
    of_wolves, of_kings = (
        (np.where(is_wolf, of_pairs, 0.0).sum(axis=1) / whole).tolist() for of_pairs in (total, total * hidden_king)
    )
    odds: dict[int, dict[Role, float]] = {}
    for at, wolf in enumerate(of_wolves):
        crowned = wolf if at + 1 in memory.shooters else of_kings[at]
        seer = float(total[is_seer[at]].sum() / whole)
        odds[at + 1] = {king: crowned, Role.WOLF: max(0.0, wolf - crowned), Role.SEER: seer}
    if all_roles:
        backward = tables(reversed(places), -1, more, fewer)[::-1]
        before, after = np.stack(forward[:-1], axis=-2), np.stack(backward[1:], axis=-2)
        free = ~(is_wolf | is_seer)
        index = (free.cumsum(axis=0) - 1) * len(cases) + case_of
        for role, god in enumerate(gods):
            through = before[fewer[role]] * shares[role] * after[more[role]]
            through = through.reshape(-1, shares[role].size)
            for at in seats:
                of_pairs = through.take(index[at, free[at]], axis=1) * pair_weight[free[at]]
                odds[at + 1][god] = sum((of_pairs.sum(axis=1) / whole).tolist())
        for found in odds.values():
            found[Role.VILLAGER] = max(0.0, 1.0 - sum(found.values()))
    return {seat: {role: found[role] for role in memory.deck if role in found} for seat, found in odds.items()}


def wolf_odds(odds: Odds) -> dict[int, float]:
    """Seat -> probability of being a wolf."""
    return {seat: sum(p for role, p in of_role.items() if role.side is Side.WOLF) for seat, of_role in odds.items()}
