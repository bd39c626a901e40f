"""The player that prefers another night's check to a guess: 分票打平, 多验一夜.

With four living seats and no wolf found an exile is a guess, and a wrong guess loses a game with one wolf. Two votes
against two tie, and a second tie exiles nobody, so that the seer, if it lives, checks once more. The seer announces its
vote and requests one of a mate, preferably a cleared one; the two named seats vote for each other, and a wolf among
them that votes otherwise is exiled. Between two equally credible claims to be the seer, the two other seats split in
the same way.
"""

import random

from runners.werewolf.brains.beliefs import Beliefs, believe_by_rule
from runners.werewolf.brains.scripted import ScriptedBrain
from runners.werewolf.brains.turn import Turn
from runners.werewolf.game import Role, Side

LEAD = 3.0
"""How far the suspicion of its target in a split is raised above all others."""
SEATS = 4
"""Living seats at which a vote is split."""


class PatientBrain(ScriptedBrain):
    """A scripted player whose good seats tie the vote, with one wolf in the deck, where they could only guess."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        self._believe = self._believe_to_tie
        # As the seer: day -> (own target, mate's target, mate).
        self._split: dict[int, tuple[int, int, int]] = {}

    def _believe_to_tie(self, turn: Turn, role: Role) -> Beliefs:
        beliefs = believe_by_rule(turn, role)
        memory, others = turn.memory, turn.others
        wolves = sum(count for dealt, count in memory.deck.items() if dealt.side is Side.WOLF)
        if turn.observation.side is Side.WOLF or wolves != 1 or len(others) + 1 != SEATS:
            return beliefs
        split = None
        if role is Role.SEER:
            unknown = set(others) - memory.found.keys()
            if memory.claims or Side.WOLF in memory.found.values() or len(unknown) < 2:
                return beliefs
            against, other, mate = self._split.setdefault(turn.request.day, _by_suspicion(beliefs))
            split = mate, other
        else:
            against = _of_a_split(turn) or _of_two_claims(turn, beliefs)
            if against is None:
                return beliefs
        raised = max(beliefs.suspicion.values()) + LEAD
        return Beliefs(beliefs.seer, beliefs.clear, {**beliefs.suspicion, against: raised}, split)


def _by_suspicion(beliefs: Beliefs) -> tuple[int, int, int]:
    """The three other seats, a cleared one last."""
    first, second, third = sorted(beliefs.suspicion, key=beliefs.suspicion.__getitem__, reverse=True)
    return first, second, third


def _of_a_split(turn: Turn) -> int | None:
    """Vote of a seat other than the seer after the only seer requested a tie; None without a request."""
    memory = turn.memory
    if len(memory.claims) != 1:
        return None
    ((seer, reports),) = memory.claims.items()
    requests = [(seat, target) for (speaker, seat), target in memory.requested_votes.items() if speaker == seer]
    if seer not in turn.others or Side.WOLF in reports.values() or len(requests) != 1:
        return None
    ((mate, other),) = requests
    named = {turn.me, *turn.others} - {seer, mate}
    if len(named) != 2 or other not in named or named & reports.keys():
        return None
    (against,) = named - {other}
    return against if turn.me == other else other


def _of_two_claims(turn: Turn, beliefs: Beliefs) -> int | None:
    """Vote of a seat between two living claims, neither of them clear; the fellow votes for the other; else None."""
    claimants = sorted(seat for seat in turn.memory.claims if seat in turn.others)
    if len(turn.memory.claims) != 2 or len(claimants) != 2 or beliefs.clear:
        return None
    (fellow,) = (seat for seat in turn.others if seat not in claimants)
    return claimants[0] if turn.me < fellow else claimants[1]
