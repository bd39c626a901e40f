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
from itertools import combinations, product
from math import comb

import numpy as np
from numpy.typing import NDArray

from runners.werewolf.brains.memory import HIDDEN_GODS, TableMemory
from runners.werewolf.game import Event, EventKind, Role, Side

Odds = Mapping[int, Mapping[Role, float]]
"""Seat -> role -> probability; the sum over a seat is 1, over a role the number of its cards."""

IMPOSSIBLE, NEGLIGIBLE = 1e-9, 1e-7

# Probabilities that a seer that has spoken did not claim its role, and that another good seat claims it.
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
    return odds_of(memory, seat, Role(own[0].data["role"]))


def odds_of(memory: TableMemory, seat: int, role: Role, *, publicly: bool = False) -> Odds:
    """``role_odds`` from a seat's memory.

    publicly: the odds of a seat with ``role`` that knows only the public record, which a wolf pretends to hold.
    """
    deck = tuple(sorted(memory.deck.elements()))
    sets = _wolf_sets(len(deck), sum(other.side is Side.WOLF for other in deck))
    weight = np.zeros(len(sets))
    _weigh_public(memory, sets, weight, speaker=seat)
    known = {seat: role.side}
    if not publicly:
        known = dict.fromkeys(memory.team, Side.WOLF) | (memory.found if role is Role.SEER else {}) | known
    for other, side in known.items():
        _know(sets, weight, other, side)
    possible = weight > weight.max() + np.log(NEGLIGIBLE)
    return _sum_over_gods(memory, sets[possible], weight[possible], seat, role)


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
    for voter, target in memory.attacks:
        if voter in (speaker, target):
            continue
        by_wolf = np.where(is_wolf[target], WOLF_FOR_MATE, 1.0) / (WOLF_FOR_MATE * (wolves - 1) + seats - wolves)
        by_good = np.where(is_wolf[target], GOOD_FOR_WOLF, 1.0) / (GOOD_FOR_WOLF * wolves + seats - 1 - wolves)
        weight += np.log(np.where(is_wolf[voter], by_wolf, by_good))
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
    kings = memory.deck[_king(memory)]
    shot = _shooters(memory, sets)
    placements = [comb(wolves - number, kings - number) if number <= kings else 0 for number in range(wolves + 1)]
    weight += np.log(np.maximum(np.array(placements) / comb(wolves, kings), IMPOSSIBLE))[shot]


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
        found += np.log(OTHER_CLAIMS_SEER)
    if role is Role.SEER:
        if seat not in memory.claims and seat in memory.spoken:
            found += np.log(SEER_SILENT)
        if seat in memory.claims and seat not in memory.night_deaths:
            nights = {day for day, _ in memory.night_deaths.values() if day > memory.claimed_on[seat]}
            found += len(nights) * np.log(SEER_SURVIVES)
    claimed = memory.gods.get(seat)
    if claimed is not None:
        found += np.log(CLAIMS_OWN_GOD if claimed is role else OTHER_CLAIMS_GOD)
    if seat in memory.shooters and role is not Role.HUNTER:
        found += np.log(IMPOSSIBLE)
    if memory.cards.get(seat, role) is not role:
        found += np.log(IMPOSSIBLE)
    return found


def _sum_over_gods(
    memory: TableMemory, sets: NDArray[np.bool_], weight: NDArray[np.float64], me: int, my_role: Role
) -> Odds:
    """Odds of all roles from the weights of the sets of wolves, summed over all deals of the good roles."""
    seats = range(sets.shape[1])
    # Pairs of a set of wolves and a seer outside it; -1 without a seer in the deck.
    rows, seers = np.nonzero(~sets) if memory.deck[Role.SEER] else (np.arange(len(sets)), np.full(len(sets), -1))
    kept = (seers == me - 1) == (my_role is Role.SEER)
    rows, seers = rows[kept], seers[kept]
    wolves_of, log_weight = sets[rows], weight[rows].copy()
    for at in seats:
        is_seer = seers == at
        if at + 1 == me or not is_seer.any():
            continue
        log_weight[is_seer] += _log_of_good(memory, at + 1, Role.SEER)
        for reported, side in memory.claims.get(at + 1, {}).items():
            if reported - 1 in seats:
                wrong = wolves_of[:, reported - 1] != (side is Side.WOLF)
                log_weight[is_seer & wrong] += np.log(IMPOSSIBLE)
    pair_weight = np.exp(log_weight - log_weight.max())
    gods = [role for role in HIDDEN_GODS if memory.deck[role]]
    good = (*gods, Role.VILLAGER)
    factors = np.array([[np.exp(_log_of_good(memory, at + 1, role)) for role in good] for at in seats])
    factors[me - 1] = [role is my_role for role in good]
    free = ~(wolves_of | (seers[:, None] == np.arange(len(seats))[None, :]))
    # A state counts the seated cards of each god; a move seats one more.
    full = tuple(memory.deck[role] for role in gods)
    number_of = {state: number for number, state in enumerate(product(*(range(count + 1) for count in full)))}
    moves = [
        (number, other, role)
        for state, number in number_of.items()
        for role in range(len(gods))
        if (other := number_of.get((*state[:role], state[role] + 1, *state[role + 1 :]))) is not None
    ]

    def placements(order: Iterable[int], start: int, moves: Sequence[tuple[int, int, int]]) -> list[NDArray]:
        """Weight of each state before the first seat of ``order`` and after each seat."""
        tables = [np.zeros((len(number_of), len(rows)))]
        tables[0][start] = 1.0
        for at in order:
            before = tables[-1]
            after = before * np.where(free[:, at], factors[at, -1], 1.0)
            for source, target, role in moves:
                after[target] += before[source] * np.where(free[:, at], factors[at, role], 0.0)
            tables.append(after)
        return tables

    forward = placements(seats, 0, moves)
    others = placements(reversed(seats), number_of[full], [(target, source, role) for source, target, role in moves])
    backward = others[::-1]
    total = pair_weight * forward[-1][number_of[full]]
    whole = total.sum()
    wolves, kings = int(sets[0].sum()), memory.deck[_king(memory)]
    shot = _shooters(memory, wolves_of)
    hidden_king = np.maximum(kings - shot, 0) / np.maximum(wolves - shot, 1)
    odds: dict[int, dict[Role, float]] = {}
    for at in seats:
        wolf = float((total * wolves_of[:, at]).sum() / whole)
        king = wolf if at + 1 in memory.shooters else float((total * hidden_king * wolves_of[:, at]).sum() / whole)
        found = {
            _king(memory): king,
            Role.WOLF: max(0.0, wolf - king),
            Role.SEER: float(total[seers == at].sum() / whole),
            **dict.fromkeys(gods, 0.0),
        }
        for source, target, role in moves:
            through = forward[at][source] * factors[at, role] * backward[at + 1][target]
            found[gods[role]] += float((pair_weight * through)[free[:, at]].sum() / whole)
        found[Role.VILLAGER] = max(0.0, 1.0 - sum(found.values()))
        odds[at + 1] = {role: found[role] for role in memory.deck}
    return odds


def wolf_odds(odds: Odds) -> dict[int, float]:
    """Seat -> probability of being a wolf."""
    return {seat: sum(p for role, p in of_role.items() if role.side is Side.WOLF) for seat, of_role in odds.items()}
