"""The player that answers at random."""

import random

from runners.werewolf.game import Action, Decision, Observation, Option, choices
from runners.werewolf.language import saying

RIDING_RATE = 0.05
"""Probability of an option that comes with a speech or vote; low, since each explosion ends a day."""

_RIDING = frozenset({Option.EXPLODE, Option.WITHDRAW})


class RandomBrain:
    """Draws each choice uniformly, nobody included, and its sentences at random."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def act(self, observation: Observation) -> Action:
        request = observation.question
        riding = [option for option in request.options if option in _RIDING]
        if riding and self._rng.random() < RIDING_RATE:
            choice = self._rng.choice(riding)
        else:
            choice = self._rng.choice([choice for choice in choices(request) if choice not in riding])
        # An explosion replaces the speech.
        words = self._words(observation, choice) if request.speaks and choice is not Option.EXPLODE else []
        return Action(choice, saying.fit_together(words, request.speech_chars))

    def _words(self, observation: Observation, choice: int | Option | None) -> list[str]:
        rng, limit = self._rng, observation.request.speech_chars
        if observation.request.decision is Decision.WOLF_TALK:
            return [] if choice is None else [saying.say(rng, saying.PROPOSALS, limit, prey=choice)]
        others = [seat for seat in observation.living if seat != observation.seat]
        if not others or rng.random() < 0.5:
            return [saying.say(rng, saying.CLAIMS_GOOD, limit), saying.say(rng, saying.SMALL_TALK, limit)]
        return [saying.say(rng, saying.ACCUSATIONS, limit, accused=rng.choice(others))]
