"""The player that prefers another night's check to a guess: 分票打平, 多验一夜.

With four living seats and no wolf found, to agree on whom to exile is to guess, and one wrong guess loses a game with
one wolf. Two votes against two tie, and a tie in the PK as well exiles nobody: the seer, where it lives on, checks once
more. So the seer says whom it votes for, and whom a mate is to vote for, the one that it cleared where that one lives;
the two that are named vote for each other. Where the wolf is among these two and votes for anybody else, it is exiled.
The same holds of two claims to be the seer that are as good as each other, for the two that have to choose.
"""

import random

from runners.werewolf.brains.beliefs import Beliefs, believe_by_rule
from runners.werewolf.brains.scripted import ScriptedBrain
from runners.werewolf.brains.turn import Turn
from runners.werewolf.game import Role, Side

LEAD = 3.0
"""How far the suspicion of whom it votes for to tie stands above all others, whatever is said meanwhile."""
SEATS = 4
"""Living seats with which two votes against two tie."""


class PatientBrain(ScriptedBrain):
    """A scripted player that, with one wolf in the deck, ties the vote while the good side could only guess.

    As a wolf it plays as a scripted player does.
    """

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        self._believe = self._believe_to_tie
        # As the seer, day -> whom it stands against, whom its mate is to vote for, the mate.
        self._split: dict[int, tuple[int, int, int]] = {}

    def _believe_to_tie(self, turn: Turn, role: Role) -> Beliefs:
        beliefs = believe_by_rule(turn, role)
        memory, others = turn.memory, turn.others
        wolves = sum(count for dealt, count in memory.deck.items() if dealt.side is Side.WOLF)
        if turn.observation.side is Side.WOLF or wolves != 1 or len(others) + 1 != SEATS:
            return beliefs
        asks = None
        if role is Role.SEER:
            unknown = set(others) - memory.found.keys()
            if memory.claims or Side.WOLF in memory.found.values() or len(unknown) < 2:
                return beliefs
            against, other, mate = self._split.setdefault(turn.request.day, _by_suspicion(beliefs))
            asks = mate, other
        else:
            against = _of_a_split(turn) or _of_two_claims(turn, beliefs)
            if against is None:
                return beliefs
        raised = max(beliefs.suspicion.values()) + LEAD
        return Beliefs(beliefs.seer, beliefs.clear, {**beliefs.suspicion, against: raised}, asks)


def _by_suspicion(beliefs: Beliefs) -> tuple[int, int, int]:
    """The three other seats; whom the seer has cleared is last."""
    first, second, third = sorted(beliefs.suspicion, key=beliefs.suspicion.__getitem__, reverse=True)
    return first, second, third


def _of_a_split(turn: Turn) -> int | None:
    """The vote of a seat other than the seer after the only seer has requested a tie; None without a request."""
    memory = turn.memory
    if len(memory.claims) != 1:
        return None
    ((seer, reports),) = memory.claims.items()
    asked = [(seat, whom) for (speaker, seat), whom in memory.asked.items() if speaker == seer]
    if seer not in turn.others or Side.WOLF in reports.values() or len(asked) != 1:
        return None
    ((mate, other),) = asked
    named = {turn.me, *turn.others} - {seer, mate}
    if len(named) != 2 or other not in named or named & reports.keys():
        return None
    (against,) = named - {other}
    return against if turn.me == other else other


def _of_two_claims(turn: Turn, beliefs: Beliefs) -> int | None:
    """Whom a seat votes for between two living claims of which none is clear; its fellow votes for the other."""
    claimants = sorted(seat for seat in turn.memory.claims if seat in turn.others)
    if len(turn.memory.claims) != 2 or len(claimants) != 2 or beliefs.clear:
        return None
    (fellow,) = (seat for seat in turn.others if seat not in claimants)
    return claimants[0] if turn.me < fellow else claimants[1]
