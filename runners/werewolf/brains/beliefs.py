"""Beliefs of a good seat: the seer's claim that it trusts, and its suspicion of each seat."""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from runners.werewolf.brains.memory import TableMemory
from runners.werewolf.brains.turn import Turn
from runners.werewolf.game import Role, Side

CERTAIN = 100.0
"""A seat's own checks outweigh everything else."""

# Evidence for a claim to be the seer. A death in the first night is none: wolves may attack one of their own, which
# then poses as the seer. Later they seldom do, but the witch may have poisoned the seat.
KILLED_ALONE, KILLED_WITH_ANOTHER = 3.0, 1.0
PROVEN = 3.0  # it named a seat that all have seen to be a wolf
CLEARED_A_VICTIM, HOLDS_BADGE, FOLLOWER, HUNCH_ABOUT_CLAIMS = 0.7, 0.3, 0.1, 0.6
# Evidence against it: a late claim; an answer to an accusation; a report of a wolf, most of all of an undisputed 神职.
CLAIMED_LATE, ONLY_ANSWERED, NAMED_A_WOLF, NAMED_A_GOD = -2.0, -2.0, -0.5, -1.7
CLEAR_MARGIN = 1.5
"""How far a claim must lead the next for a seat to rely on it."""

# Evidence against a seat (negative: for it).
LIAR = 8.0
NAMED_BY_CLEAR_SEER, NAMED_BY_SEER = 6.0, 3.0
RIVAL_OF_CLEAR_SEER, RIVAL_OF_SEER = 5.0, 0.7
IS_SEER, CLEARED_BY_SEER = -6.0, -4.0
# Weak evidence: a wolf may have attacked itself to be saved, and may claim a role while its true holder is dead or
# hides.
SAVED_BY_ME, UNRIVALLED_GOD, RIVAL_GOD, OUTLIVED_RIVAL_GOD = -1.0, -1.6, 1.5, 6.0
ATTACKED_SEER, FOLLOWED_RIVAL, RALLIED_BY_SHERIFF = 1.0, 0.8, 1.5
VOTED_FOR_WOLF, VOTED_FOR_GOOD = -1.3, 0.6
ACCUSED_BY_ONE, MOST_ACCUSERS_COUNTED = 0.3, 5

BEYOND_CHANCE = 3.0
"""Least suspicion that is more than hunches and noise."""
CONFIDENT = 2.5
"""Least suspicion for a kill by night."""
TRUSTED = -1.5
"""Highest suspicion of a seat that gets the badge."""


@dataclass(frozen=True, slots=True)
class Beliefs:
    """Beliefs of a good seat at one turn."""

    seer: int | None  # seat of the trusted claim; None without a credible claim, and for the seer itself
    clear: bool  # whether no other claim comes close
    suspicion: Mapping[int, float]  # other living seat -> suspicion; below 0 it is trusted
    split: tuple[int, int] | None = None  # (seat, target) of the vote that it requests to get a tie

    def most_suspected(self, seats: Collection[int], at_least: float = float("-inf")) -> int | None:
        """The seat of ``seats`` suspected most; None if none is suspected ``at_least`` so much."""
        worst = max(seats, key=self.suspicion.__getitem__, default=None)
        return None if worst is None or self.suspicion[worst] < at_least else worst

    def most_trusted(self, seats: Collection[int], at_most: float = float("inf")) -> int | None:
        """The seat of ``seats`` suspected least; None if none is suspected ``at_most`` so much."""
        best = min(seats, key=self.suspicion.__getitem__, default=None)
        return None if best is None or self.suspicion[best] > at_most else best


def form_beliefs(turn: Turn, role: Role | None = None) -> Beliefs:
    """Beliefs of the current player, with its own role or one that it pretends to have."""
    return turn.believe(turn, turn.observation.role if role is None else role)


def believe_by_rule(turn: Turn, role: Role) -> Beliefs:
    """Beliefs of a good seat with ``role``, from weighted signs."""
    memory = turn.memory
    found = memory.found
    unrivalled, rivals_of_gods, outlived = _judge_gods(memory)
    if role is Role.SEER:
        seer, clear, liars = None, True, set(memory.claims)
    else:
        seer, clear, liars = _judge_claims(turn, unrivalled)
    liars |= memory.pretenders | memory.exploded
    liars |= {seat for seat, claimed in memory.gods.items() if claimed is role and memory.deck[role] == 1}
    reports = {} if seer is None else memory.claims[seer]
    rivals = memory.claims.keys() - {seer} - liars
    sheriff_rallies = memory.rallied is not None and turn.observation.sheriff not in liars | rivals
    marks: tuple[tuple[float, Collection[int]], ...] = (
        (CERTAIN, _of_side(found, Side.WOLF)),
        (-CERTAIN, _of_side(found, Side.GOOD)),
        (CERTAIN, _of_side(memory.proven, Side.WOLF)),
        (-CERTAIN, _of_side(memory.proven, Side.GOOD)),
        (LIAR, liars),
        (NAMED_BY_CLEAR_SEER if clear else NAMED_BY_SEER, _of_side(reports, Side.WOLF)),
        (CLEARED_BY_SEER, _of_side(reports, Side.GOOD)),
        (IS_SEER, {seer}),
        (RIVAL_OF_CLEAR_SEER if clear else RIVAL_OF_SEER, rivals),
        (SAVED_BY_ME, {memory.saved}),
        (UNRIVALLED_GOD, unrivalled - liars),
        (RIVAL_GOD, rivals_of_gods - liars),
        (OUTLIVED_RIVAL_GOD, outlived - liars),
        (ATTACKED_SEER, {voter for voter, target in memory.attacks if target == seer}),
        (FOLLOWED_RIVAL, {speaker for speaker, followed in memory.followed.items() if followed in rivals | liars}),
        (RALLIED_BY_SHERIFF, {memory.rallied} if sheriff_rallies else ()),
    )
    known_wolves = memory.exploded | _of_side(found, Side.WOLF) | (_of_side(reports, Side.WOLF) if clear else set())
    known_good = _victims(memory) - known_wolves - memory.claims.keys()
    heard = Counter(accused for accuser, accused in memory.accusations if accuser not in liars)
    suspicion = {
        seat: turn.hunch(seat) + ACCUSED_BY_ONE * min(heard[seat], MOST_ACCUSERS_COUNTED) for seat in turn.others
    }
    for voter, target in memory.attacks:
        if voter in suspicion:
            if target in known_wolves:
                suspicion[voter] += VOTED_FOR_WOLF
            elif target in known_good:
                suspicion[voter] += VOTED_FOR_GOOD
    for weight, seats in marks:
        if seats:
            for seat in seats:
                if seat in suspicion:
                    suspicion[seat] += weight
    return Beliefs(seer, clear, suspicion)


def _judge_claims(turn: Turn, unrivalled: set[int]) -> tuple[int | None, bool, set[int]]:
    """(seat of the trusted seer's claim, whether it leads clearly, seats of false claims)."""
    memory = turn.memory
    liars = {
        seat
        for seat, reports in memory.claims.items()
        if seat in memory.exploded
        or seat in memory.pretenders
        # The player knows that it is good.
        or reports.get(turn.me) is Side.WOLF
        or any(reports.get(shown, side) is not side for shown, side in _shown(memory).items())
    }
    credible = [seat for seat in memory.claims if seat not in liars]
    if len(credible) < 2:
        return (credible[0] if credible else None), bool(credible), liars
    ranked = sorted(((_credibility(turn, seat, unrivalled), -seat) for seat in credible), reverse=True)
    clear = ranked[0][0] - ranked[1][0] >= CLEAR_MARGIN
    return -ranked[0][1], clear, liars


def _shown(memory: TableMemory) -> dict[int, Side]:
    """Seats whose side all have seen: explosions, duels, cards."""
    return memory.proven | dict.fromkeys(memory.exploded, Side.WOLF)


def _credibility(turn: Turn, seat: int, unrivalled: set[int]) -> float:
    memory = turn.memory
    reports = memory.claims[seat]
    killed, victims = 0.0, _victims(memory)
    if seat in victims and not any(slain == seat for _, slain in memory.slain):
        killed = KILLED_ALONE if memory.night_deaths[seat][1] == 1 else KILLED_WITH_ANOTHER
    named_wolves = _of_side(reports, Side.WOLF)
    first_day = min(memory.claimed_on.values())
    answers = any(other != seat and checks.get(seat) is Side.WOLF for other, checks in memory.claims.items())
    return (
        killed
        + PROVEN * (not named_wolves.isdisjoint(_of_side(_shown(memory), Side.WOLF)))
        + CLEARED_A_VICTIM * (not victims.isdisjoint(_of_side(reports, Side.GOOD)))
        + HOLDS_BADGE * (turn.observation.sheriff == seat)
        + FOLLOWER * sum(seer == seat and speaker != seat for speaker, seer in memory.followed.items())
        + CLAIMED_LATE * (memory.claimed_on[seat] > first_day)
        + ONLY_ANSWERED * (answers and seat != next(iter(memory.claims)))
        + NAMED_A_WOLF * bool(named_wolves)
        + NAMED_A_GOD * (not named_wolves.isdisjoint(unrivalled))
        + HUNCH_ABOUT_CLAIMS * (1.0 - turn.hunch(seat))
    )


def _judge_gods(memory: TableMemory) -> tuple[set[int], set[int], set[int]]:
    """Claimants of a 神职 other than the seer: (undisputed, disputed, disputed with a rival killed by the wolves)."""
    claimants: dict[Role, list[int]] = {}
    for seat, role in memory.gods.items():
        claimants.setdefault(role, []).append(seat)
    unrivalled, rivals, outlived = set(), set(), set()
    for role, seats in claimants.items():
        if len(seats) <= memory.deck[role]:
            unrivalled.update(seats)
            continue
        rivals.update(seats)
        if not _victims(memory).isdisjoint(seats):
            outlived.update(seat for seat in seats if seat not in memory.gone)
    return unrivalled, rivals, outlived


def _victims(memory: TableMemory) -> set[int]:
    """Seats that the wolves killed after the first night, as far as is known."""
    return {seat for seat, (night, _) in memory.night_deaths.items() if night > 1} - {memory.poisoned}


def _of_side(reports: Mapping[int, Side], side: Side) -> set[int]:
    return {seat for seat, found in reports.items() if found is side}
