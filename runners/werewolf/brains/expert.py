"""The player that keeps exact odds over the deal and plays the best reply to them that its rules know.

As a good seat it believes what the odds of all that it knows say. As a wolf it pretends to believe what they say to
whoever knows only the public record, wants exiled whom that record speaks against, and by night hits where they expect
the most dangerous good seat.
"""

import random

from runners.werewolf.brains.beliefs import Beliefs
from runners.werewolf.brains.odds import Odds, odds_of, wolf_odds
from runners.werewolf.brains.scripted import ScriptedBrain
from runners.werewolf.brains.turn import Turn
from runners.werewolf.game import Action, Decision, Observation, Option, Role, Side

SPREAD = 8.0
"""A suspicion of the scripted players' scale for the whole way from certainly good to certainly a wolf."""
CLEAR_LEAD = 0.3
"""How much likelier than the next a seat must be the seer to be counted on."""
SHOOTS_AT, POISONS_AT, LATE_POISONS_AT = 0.4, 0.6, 0.42
"""How likely a wolf a seat must be to be shot, and to be poisoned by night, first and from the third night on."""
SAVES_BELOW = 0.3
"""Up to which odds of being a wolf the witch saves tonight's victim."""

_WORTH = {Role.SEER: 3.0, Role.WITCH: 2.2, Role.GUARD: 1.5, Role.HUNTER: 0.6, Role.VILLAGER: 0.8}
"""What it is worth to the wolves to kill each role by night."""


class ExpertBrain(ScriptedBrain):
    """A scripted player whose beliefs are exact odds."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        self._believe = believe_odds

    def act(self, observation: Observation) -> Action:
        """A legal answer to ``observation.request``; ValueError without a request."""
        usual = super().act(observation)
        request = observation.request
        own = odds_of(self._memory, observation.seat, observation.role) if request.targets or request.options else {}
        wolf = wolf_odds(own)
        targets = [seat for seat in request.targets if seat != observation.seat]
        match request.decision:
            case Decision.SEER_CHECK if targets:
                unknown = [seat for seat in targets if seat not in self._memory.found]
                return Action(max(unknown, key=lambda seat: _uncertainty(wolf[seat]), default=None))
            case Decision.WITCH:
                if Option.SAVE in request.options and wolf[request.subject] < SAVES_BELOW:
                    return Action(Option.SAVE)
                level = POISONS_AT if request.day < 3 else LATE_POISONS_AT
                return Action(_likeliest(wolf, targets, level) if request.day > 1 else None)
            case Decision.SHOT if observation.side is Side.GOOD:
                return Action(_likeliest(wolf, targets, SHOOTS_AT))
            case Decision.WOLF_KILL | Decision.WOLF_TALK if usual.choice not in self._memory.team and targets:
                return self._hunt(observation, usual, own)
        return usual

    def _hunt(self, observation: Observation, usual: Action, own: Odds) -> Action:
        request = observation.request
        if self._memory.proposals:
            return usual
        prey = [seat for seat in request.targets if seat not in self._memory.team and seat != observation.seat]
        best = max(
            prey, key=lambda seat: sum(_WORTH.get(role, 0.0) * odds for role, odds in own[seat].items()), default=None
        )
        if best is None or usual.choice is None:
            return usual
        return Action(best, usual.text.replace(f"{usual.choice}号", f"{best}号"))


def believe_odds(turn: Turn, role: Role) -> Beliefs:
    """The beliefs of the scripted players' kind that exact odds give; a wolf's are those of the public record."""
    publicly = turn.observation.side is Side.WOLF
    odds = odds_of(turn.memory, turn.me, role, publicly=publicly)
    wolf = wolf_odds(odds)
    memory = turn.memory
    wolves = sum(count for dealt, count in memory.deck.items() if dealt.side is Side.WOLF)
    level = wolves / (memory.deck.total() - 1)
    found = memory.found if role is Role.SEER else {}
    suspicion = {}
    for seat in turn.others:
        likely = {Side.WOLF: 1.0, Side.GOOD: 0.0}.get(found.get(seat), wolf[seat])
        heard = sum(accused == seat for _, accused in memory.accusations)
        # Votes count only together: a little weight for what others want, and a hunch between equals.
        suspicion[seat] = SPREAD * (likely - level) + 0.15 * min(heard, 5) + 0.1 * turn.hunch(seat)
        if memory.rallied == seat and wolf.get(turn.observation.sheriff, 1.0) < level:
            suspicion[seat] += 0.5
    seers = sorted(((odds[seat].get(Role.SEER, 0.0), -seat) for seat in memory.claims), reverse=True)
    if role is Role.SEER or not seers or seers[0][0] < level:
        return Beliefs(None, True, suspicion)
    clear = len(seers) == 1 or seers[0][0] - seers[1][0] >= CLEAR_LEAD
    return Beliefs(-seers[0][1], clear, suspicion)


def _likeliest(wolf: dict[int, float], seats: list[int], at_least: float) -> int | None:
    best = max(seats, key=wolf.__getitem__, default=None)
    return None if best is None or wolf[best] < at_least else best


def _uncertainty(likely: float) -> float:
    """Highest for a seat that is as likely a wolf as not; of two as uncertain, the likelier wolf."""
    return likely * (1.0 - likely) + 0.02 * likely
