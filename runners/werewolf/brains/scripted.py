"""The players that play by rule."""

import random

from runners.werewolf.brains import good, wolf
from runners.werewolf.brains.beliefs import believe_by_rule
from runners.werewolf.brains.memory import TableMemory
from runners.werewolf.brains.turn import Turn
from runners.werewolf.game import Action, Decision, Observation, Side

ABSTENTION_RATE = 0.7
"""Probability that the timid player abstains where it may."""
BALLOTS = frozenset({Decision.SHERIFF_VOTE, Decision.SHERIFF_PK_VOTE, Decision.EXILE_VOTE, Decision.PK_VOTE})
"""Decisions in which votes are counted."""


class ScriptedBrain:
    """Plays sensibly: the seer reports, good seats follow a credible seer, wolves hide and hunt the seer."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._memory = TableMemory()
        self._believe = believe_by_rule

    def act(self, observation: Observation) -> Action:
        request, me = observation.question, observation.seat
        self._memory.learn(observation.events, me, observation.deck)
        others = tuple(seat for seat in observation.living if seat != me)
        turn = Turn(observation, request, self._memory, self._rng, me, others, self._believe)
        return (wolf if observation.side is Side.WOLF else good).answer(turn)


class TimidBrain(ScriptedBrain):
    """A scripted player that abstains from most votes, a teacher that leaves room for reinforcement learning."""

    def act(self, observation: Observation) -> Action:
        bold, request = super().act(observation), observation.question
        if request.decision in BALLOTS and request.may_pass and self._rng.random() < ABSTENTION_RATE:
            return Action(None)
        return bold
