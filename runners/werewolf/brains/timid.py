"""The player that sees who ought to go, and seldom dares to say so with its vote."""

from runners.werewolf.brains.scripted import ScriptedBrain
from runners.werewolf.game import Action, Decision, Observation

ABSTENTION_RATE = 0.7
"""How likely it abstains where it may."""

BALLOTS = frozenset({Decision.SHERIFF_VOTE, Decision.SHERIFF_PK_VOTE, Decision.EXILE_VOTE, Decision.PK_VOTE})
"""Decisions in which votes are counted."""


class TimidBrain(ScriptedBrain):
    """Plays as a scripted player does, but abstains from most votes, which gives the game away to the wolves.

    Who learns from it by imitation knows the game, and has yet to learn to act on it.
    """

    def act(self, observation: Observation) -> Action:
        """A legal answer to ``observation.request``; ValueError without a request."""
        bold = super().act(observation)
        request = observation.request
        if request.decision in BALLOTS and request.may_pass and self._rng.random() < ABSTENTION_RATE:
            return Action(None)
        return bold
