"""The player that plays by rule."""

import random

from runners.werewolf.brains import good, wolf
from runners.werewolf.brains.beliefs import believe_by_rule
from runners.werewolf.brains.memory import TableMemory
from runners.werewolf.brains.turn import Temper, Turn, question_of
from runners.werewolf.game import Action, Observation, Side


class ScriptedBrain:
    """Plays sensibly: the seer reports, good seats follow a credible seer, wolves hide and hunt the seer."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._memory = TableMemory()
        self._temper = Temper()
        self._believe = believe_by_rule

    def act(self, observation: Observation) -> Action:
        """A legal answer to ``observation.request``; ValueError without a request."""
        request = question_of(observation)
        self._memory.learn(observation.events, observation.seat, observation.deck)
        turn = Turn(
            observation=observation,
            request=request,
            memory=self._memory,
            temper=self._temper,
            chance=self._rng,
            me=observation.seat,
            others=tuple(seat for seat in observation.living if seat != observation.seat),
            believe=self._believe,
        )
        return (wolf if observation.side is Side.WOLF else good).answer(turn)
