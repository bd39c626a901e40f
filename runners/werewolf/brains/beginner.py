"""The player that knows the words of the game, and often forgets them when it votes."""

from random import Random

from runners.werewolf.brains.scripted import ScriptedBrain
from runners.werewolf.game import Action, Decision, Observation

HEEDING_RATE = 0.2
"""How likely its vote follows from what was said."""

BALLOTS = frozenset({Decision.SHERIFF_VOTE, Decision.SHERIFF_PK_VOTE, Decision.EXILE_VOTE, Decision.PK_VOTE})
"""Decisions in which votes are counted."""


class BeginnerBrain(ScriptedBrain):
    """Speaks and acts at night as a scripted player does, and gives most of its votes to anybody, whatever was said.

    Who learns from it by imitation can talk, and has yet to learn to listen.
    """

    def __init__(self, rng: Random) -> None:
        super().__init__(rng)
        self._ballots = rng

    def act(self, observation: Observation) -> Action:
        """A legal answer to ``observation.request``; ValueError without a request."""
        sensible = super().act(observation)
        request = observation.request
        if request.decision not in BALLOTS or not request.targets or self._ballots.random() < HEEDING_RATE:
            return sensible
        return Action(self._ballots.choice(request.targets))
