"""The player that computes exact odds over the deal and acts on them by rules.

A good seat uses the odds given all that it knows. A wolf pretends to use the odds given the public record, votes with
them, and attacks the seat that is most likely a dangerous god.
"""

import random
from collections.abc import Callable, Iterable, Mapping

from runners.werewolf.brains.beliefs import Beliefs
from runners.werewolf.brains.odds import Odds, odds_of, wolf_odds
from runners.werewolf.brains.scripted import ScriptedBrain
from runners.werewolf.brains.turn import Turn
from runners.werewolf.game import Action, Decision, Observation, Option, Role, Side
from runners.werewolf.game.roles import CARDS

SPREAD = 8.0
"""Suspicion, on the scripted players' scale, per unit of the probability of being a wolf."""
CLEAR_LEAD = 0.3
"""How far the likeliest seer must lead the next, in probability, for a seat to rely on it."""
SHOOTS_AT, POISONS_AT, LATE_POISONS_AT = 0.4, 0.6, 0.42
"""Least probability of being a wolf for a shot, for poison in the second night, and from the third night on."""
SAVES_BELOW = 0.3
"""The witch saves a victim below this probability of being a wolf."""

ENOUGH_TO_POSE = 3
"""Least number of wolves at which one is sent to pose as the seer, which costs its life."""


class ExpertBrain(ScriptedBrain):
    """A scripted player with exact odds as its beliefs."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        self._believe = self._believe_odds
        self._known: Odds = {}
        self._known_when: tuple[object, ...] = ()

    def act(self, observation: Observation) -> Action:
        wolves = sum(role.side is Side.WOLF for role in observation.deck)
        self._memory.resolves |= {("send a poser", 0): float(wolves < ENOUGH_TO_POSE), ("pose", 0): 1.0}
        usual = super().act(observation)
        request, team = observation.request, self._memory.team
        targets = [seat for seat in request.targets if seat != observation.seat]
        match request.decision:
            case Decision.SEER_CHECK if targets:
                if observation.sheriff in (observation.seat, None) and usual.choice in self._memory.plan:
                    return usual  # if it dies tonight, the badge that it has or wins tomorrow tells of that check
                wolf = wolf_odds(self._odds(observation, observation.role))
                unknown = [seat for seat in targets if seat not in self._memory.found]
                return Action(self._best(unknown, lambda seat: _uncertainty(wolf[seat])))
            case Decision.WITCH:
                wolf = wolf_odds(self._odds(observation, observation.role))
                if Option.SAVE in request.options and wolf[request.subject] < SAVES_BELOW:
                    return Action(Option.SAVE)
                level = POISONS_AT if request.day < 3 else LATE_POISONS_AT
                others = [seat for seat in targets if seat != request.subject]  # tonight's victim dies, most likely
                return Action(self._likeliest(wolf, others, level) if request.day > 1 else None)
            case Decision.SHOT if observation.side is Side.GOOD:
                wolf = wolf_odds(self._odds(observation, observation.role))
                return Action(self._likeliest(wolf, targets, SHOOTS_AT))
            case Decision.WOLF_KILL | Decision.WOLF_TALK if (
                not self._memory.proposals and usual.choice in set(request.targets) - team
            ):
                odds = self._odds(observation, observation.role)
                prey = [seat for seat in targets if seat not in team]
                best = self._best(prey, lambda seat: _worth(odds[seat])) or usual.choice
                text = usual.text.replace(f"{usual.choice}号", f"{best}号", 1)
                return Action(best, text if len(text) <= request.speech_chars else "")
        return usual

    def _best(self, seats: Iterable[int], value: Callable[[int], float]) -> int | None:
        """The seat with the highest value; of equal ones a random one, since a fixed one could be foreseen."""
        return max(seats, key=lambda seat: (round(value(seat), 9), self._rng.random()), default=None)

    def _likeliest(self, wolf: Mapping[int, float], seats: Iterable[int], at_least: float) -> int | None:
        best = self._best(seats, wolf.__getitem__)
        return None if best is None or wolf[best] < at_least else best

    def _odds(self, observation: Observation, role: Role, *, publicly: bool = False) -> Odds:
        when = (observation.day, observation.request, observation.events, role, publicly)
        if when != self._known_when:
            victims = role.side is Side.WOLF  # only those of a wolf depend on all roles
            self._known = odds_of(self._memory, observation.seat, role, publicly=publicly, all_roles=victims)
            self._known_when = when
        return self._known

    def _believe_odds(self, turn: Turn, role: Role) -> Beliefs:
        """Odds on the scripted players' scale; a wolf uses the odds given the public record."""
        memory = turn.memory
        odds = self._odds(turn.observation, role, publicly=turn.observation.side is Side.WOLF)
        wolf = wolf_odds(odds)
        wolves = sum(count for dealt, count in memory.deck.items() if dealt.side is Side.WOLF)
        level = wolves / (memory.deck.total() - 1)
        found = memory.found if role is Role.SEER else {}
        suspicion = {}
        for seat in turn.others:
            likely = {Side.WOLF: 1.0, Side.GOOD: 0.0}.get(found.get(seat), wolf[seat])
            heard = sum(accused == seat for _, accused in memory.accusations)
            # An exile takes several votes, so others' accusations weigh a little; hunches break ties.
            suspicion[seat] = SPREAD * (likely - level) + 0.15 * min(heard, 5) + 0.1 * turn.hunch(seat)
            if memory.rallied == seat and wolf.get(turn.observation.sheriff, 1.0) < level:
                suspicion[seat] += 0.5
        seers = sorted(((odds[seat].get(Role.SEER, 0.0), -seat) for seat in memory.claims), reverse=True)
        if role is Role.SEER or not seers or seers[0][0] < level:
            return Beliefs(None, True, suspicion)
        clear = len(seers) == 1 or seers[0][0] - seers[1][0] >= CLEAR_LEAD
        return Beliefs(-seers[0][1], clear, suspicion)


def _worth(odds: Mapping[Role, float]) -> float:
    """Expected value of a seat's death for the wolves."""
    return sum(CARDS[role].worth * likely for role, likely in odds.items())


def _uncertainty(likely: float) -> float:
    """Highest for even odds; of two equally uncertain seats, for the likelier wolf."""
    return likely * (1.0 - likely) + 0.02 * likely
