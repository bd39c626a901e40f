"""The player that would rather have another night's check than guess: 分票打平, 多验一夜.

Where a seer has cleared one of four living seats, it and the one that it cleared trust each other, and each of the
other two says that the other is the wolf. To agree on one of them is right every second time. Voting apart ties the
vote, and its PK as well: nobody is exiled, and the seer, where it lives on, checks once more. So the seer says whom it
votes for, and whom the one that it cleared is to vote for. The same holds of two claims to be the seer that are as good
as each other, for the two that have to choose between them.
"""

import random
from collections.abc import Mapping

from runners.werewolf.brains.beliefs import Beliefs, believe_by_rule
from runners.werewolf.brains.scripted import ScriptedBrain
from runners.werewolf.brains.turn import Turn
from runners.werewolf.game import Role, Side

LEAD = 3.0
"""How far the suspicion of whom it votes for to tie stands above all others, whatever is said meanwhile."""
SEATS = 4
"""Living seats with which two votes against two tie."""


class PatientBrain(ScriptedBrain):
    """A scripted player that, with one wolf in the deck, has votes tied while the good side could but guess.

    As a wolf it plays as a scripted player does.
    """

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        self._believe = self._believe_to_tie
        self._named: dict[int, int] = {}  # as the seer: day -> whom it has begun to stand against

    def _believe_to_tie(self, turn: Turn, role: Role) -> Beliefs:
        beliefs = believe_by_rule(turn, role)
        wolves = sum(count for dealt, count in turn.memory.deck.items() if dealt.side is Side.WOLF)
        if turn.observation.side is Side.WOLF or wolves != 1 or len(turn.others) + 1 != SEATS:
            return beliefs
        asks = None
        if role is Role.SEER:
            unknown = _unknown_to(turn.me, turn.memory.found, turn)
            if turn.memory.claims or not unknown:
                return beliefs
            most = max(unknown, key=beliefs.suspicion.__getitem__)
            against = self._named.setdefault(turn.request.day, most)
            (mate,), (other,) = set(turn.others) - set(unknown), set(unknown) - {against}
            asks = mate, other
        else:
            against = _as_another(turn, beliefs)
        if against is None:
            return beliefs
        raised = max(beliefs.suspicion.values()) + LEAD
        return Beliefs(beliefs.seer, beliefs.clear, {**beliefs.suspicion, against: raised}, asks)


def _as_another(turn: Turn, beliefs: Beliefs) -> int | None:
    """Whom a seat that is not the seer stands against so that the vote is tied; None where it is not to be."""
    memory = turn.memory
    claimants = sorted(seat for seat in memory.claims if seat in turn.others)
    if len(memory.claims) == len(claimants) == 1:
        (seer,) = claimants
        reports = memory.claims[seer]
        asked = memory.asked.get((seer, turn.me))
        is_cleared = reports.get(turn.me) is Side.GOOD
        return asked if is_cleared and asked in _unknown_to(seer, reports, turn) else None
    if len(memory.claims) == len(claimants) == 2 and not beliefs.clear:
        (fellow,) = (seat for seat in turn.others if seat not in claimants)
        return claimants[0] if turn.me < fellow else claimants[1]
    return None


def _unknown_to(seer: int, checks: Mapping[int, Side], turn: Turn) -> tuple[int, ...]:
    """The two living seats of which a seer knows nothing, where it has cleared the third; none otherwise."""
    living = [seat for seat in (turn.me, *turn.others) if seat != seer]
    unknown = tuple(seat for seat in living if seat not in checks)
    cleared = all(checks[seat] is Side.GOOD for seat in living if seat in checks)
    return unknown if cleared and len(unknown) == 2 else ()
