"""What a good seat makes of the table: whose claim to be the seer it believes, and whom it suspects how much."""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from runners.werewolf.brains.memory import TableMemory
from runners.werewolf.brains.turn import Turn
from runners.werewolf.game import Role, Side

CERTAIN = 100.0
"""A seat's own finds outweigh everything heard."""

# What speaks for a claim to be the seer.
KILLED_ALONE, KILLED_WITH_ANOTHER = 3.0, 1.0  # wolves seldom kill their own, but the witch may have poisoned it
PROVEN = 3.0  # it named a seat that exploded
HIT_BEFORE_ME, HIT_BY_REPORT = 3.0, 1.5  # the witch saved it: from her own knowledge, or as she says
HOLDS_BADGE, NAMED_A_WOLF, FOLLOWER, HUNCH_ABOUT_CLAIMS = 0.3, 0.6, 0.1, 1.6
CLEAR_MARGIN = 1.5
"""How far a claim must lead the next for a seat to count on it."""

# What speaks against a seat (or for it, if negative).
LIAR = 8.0
NAMED_BY_CLEAR_SEER, NAMED_BY_SEER = 6.0, 3.0
RIVAL_OF_CLEAR_SEER, RIVAL_OF_SEER = 5.0, 2.5
IS_SEER, CLEARED_BY_SEER, SAVED_BY_ME, VOUCHED_BY_WITCH, UNRIVALLED_GOD = -6.0, -4.0, -3.5, -3.0, -4.0
ATTACKED_SEER, FOLLOWED_RIVAL, RALLIED_BY_SHERIFF = 1.0, 0.8, 1.5
ACCUSED_BY_ONE, MOST_ACCUSERS_COUNTED = 0.3, 5

BEYOND_CHANCE = 3.0
"""From here on a suspicion rests on more than hunches and noise."""
CONFIDENT = 5.0
"""From here on a suspicion is good enough to kill for by night."""
TRUSTED = -1.5
"""Up to here a seat is trusted with the badge."""


_DEALT_ONCE = frozenset({Role.WITCH, Role.GUARD})
"""Of what seats seldom claim to be: the roles that no preset deals twice."""


@dataclass(frozen=True, slots=True)
class Beliefs:
    """What a good seat believes at one turn.

    seer: the seat whose claim it believes; None without a credible claim, and for the seer itself.
    clear: whether no other claim comes close.
    suspicion: each living seat but its own -> how strongly it is suspected; below 0 it is trusted.
    """

    seer: int | None
    clear: bool
    suspicion: Mapping[int, float]

    def most_suspected(self, seats: Collection[int], at_least: float = float("-inf")) -> int | None:
        """The seat of ``seats`` suspected most; None if none is suspected ``at_least`` so much."""
        worst = max(seats, key=self.suspicion.__getitem__, default=None)
        return None if worst is None or self.suspicion[worst] < at_least else worst

    def most_trusted(self, seats: Collection[int], at_most: float = float("inf")) -> int | None:
        """The seat of ``seats`` suspected least; None if none is suspected ``at_most`` so much."""
        best = min(seats, key=self.suspicion.__getitem__, default=None)
        return None if best is None or self.suspicion[best] > at_most else best


def form_beliefs(turn: Turn) -> Beliefs:
    """What the good seat whose turn it is believes now."""
    memory = turn.memory
    found = memory.found
    if turn.observation.role is Role.SEER:
        seer, clear, liars = None, True, set(memory.claims)
    else:
        seer, clear, liars = _judge_claims(turn)
    liars |= memory.pretenders
    liars |= {seat for seat, role in memory.gods.items() if role is turn.observation.role and role in _DEALT_ONCE}
    reports = {} if seer is None else memory.claims[seer]
    rivals = memory.claims.keys() - {seer} - liars
    sheriff_rallies = memory.rallied is not None and turn.observation.sheriff not in liars | rivals
    marks: tuple[tuple[float, Collection[int]], ...] = (
        (CERTAIN, _of_side(found, Side.WOLF)),
        (-CERTAIN, _of_side(found, Side.GOOD)),
        (LIAR, liars),
        (NAMED_BY_CLEAR_SEER if clear else NAMED_BY_SEER, _of_side(reports, Side.WOLF)),
        (CLEARED_BY_SEER, _of_side(reports, Side.GOOD)),
        (IS_SEER, {seer}),
        (RIVAL_OF_CLEAR_SEER if clear else RIVAL_OF_SEER, rivals),
        (SAVED_BY_ME, {memory.saved}),
        (VOUCHED_BY_WITCH, _told_by_witches(memory, memory.vouched) - liars),
        (UNRIVALLED_GOD, _unrivalled(memory) - liars),
        (ATTACKED_SEER, {voter for voter, target in memory.attacks if target == seer}),
        (FOLLOWED_RIVAL, {speaker for speaker, followed in memory.followed.items() if followed in rivals | liars}),
        (RALLIED_BY_SHERIFF, {memory.rallied} if sheriff_rallies else ()),
    )
    heard = Counter(accused for accuser, accused in memory.accusations if accuser not in liars)
    suspicion = {
        seat: turn.hunch(seat)
        + ACCUSED_BY_ONE * min(heard[seat], MOST_ACCUSERS_COUNTED)
        + sum(weight for weight, seats in marks if seat in seats)
        for seat in turn.others
    }
    return Beliefs(seer, clear, suspicion)


def _judge_claims(turn: Turn) -> tuple[int | None, bool, set[int]]:
    """(the claim to be the seer that is believed, whether it is clear of the others, the claims that are lies)."""
    memory = turn.memory
    liars = {
        seat
        for seat, reports in memory.claims.items()
        if seat in memory.exploded | memory.pretenders
        # It knows itself to be good.
        or reports.get(turn.me) is Side.WOLF
        or any(reports.get(wolf) is Side.GOOD for wolf in memory.exploded)
    }
    ranked = sorted(
        ((_credibility(turn, seat), -seat) for seat in memory.claims if seat not in liars),
        reverse=True,
    )
    if not ranked:
        return None, False, liars
    clear = len(ranked) == 1 or ranked[0][0] - ranked[1][0] >= CLEAR_MARGIN
    return -ranked[0][1], clear, liars


def _credibility(turn: Turn, seat: int) -> float:
    memory = turn.memory
    reports = memory.claims[seat]
    hit = 0.0
    if seat == memory.saved:
        hit = HIT_BEFORE_ME
    elif seat in _told_by_witches(memory, memory.vouched):
        hit = HIT_BY_REPORT
    if seat in memory.night_deaths and seat != memory.poisoned and seat not in _told_by_witches(memory, memory.slain):
        hit = KILLED_ALONE if memory.night_deaths[seat] == 1 else KILLED_WITH_ANOTHER
    return (
        hit
        + PROVEN * any(reports.get(wolf) is Side.WOLF for wolf in memory.exploded)
        + HOLDS_BADGE * (turn.observation.sheriff == seat)
        + NAMED_A_WOLF * (Side.WOLF in reports.values())
        + FOLLOWER * sum(seer == seat and speaker != seat for speaker, seer in memory.followed.items())
        + HUNCH_ABOUT_CLAIMS * turn.hunch(seat)
    )


def _unrivalled(memory: TableMemory) -> set[int]:
    """Seats that alone claim to be what they claim, the seer's claims apart."""
    claimed = list(memory.gods.values())
    return {seat for seat, role in memory.gods.items() if claimed.count(role) == 1}


def _told_by_witches(memory: TableMemory, told: Collection[tuple[int, int]]) -> set[int]:
    """The seats in ``told``, pairs of (witch, seat), as far as nobody else claims to be the witch."""
    unrivalled = _unrivalled(memory)
    return {seat for witch, seat in told if witch in unrivalled}


def _of_side(reports: Mapping[int, Side], side: Side) -> set[int]:
    return {seat for seat, found in reports.items() if found is side}
