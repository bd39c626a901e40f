"""Players without a model: decisions from observations and a random generator.

An Observation holds new events only, so scripted brains keep a memory; a repeated observation does not change it.
Scripted players understand each other by the words of public speeches alone (``runners.werewolf.language``).

- ``random_brain``: any legal answer.
- ``timid``: as scripted, but mostly abstains.
- ``scripted``: play by rule, made of ``memory`` (a seat's knowledge), ``turn`` (the inputs of an answer),
  ``beliefs`` (trust and suspicion of a good seat), ``speech`` (sentences), ``good`` and ``wolf`` (decisions by side).
- ``patient``: as scripted, but arranges a tied vote where the good side could only guess.
- ``expert``: as scripted, with exact odds over the deal (``odds``).
- ``poser``, ``follower``: as scripted, with one habit each (``habits``).
"""

from collections.abc import Callable, Mapping
from random import Random
from typing import Protocol

from runners.werewolf.brains.expert import ExpertBrain
from runners.werewolf.brains.habits import FollowerBrain, PoserBrain
from runners.werewolf.brains.patient import PatientBrain
from runners.werewolf.brains.random_brain import RandomBrain
from runners.werewolf.brains.scripted import ScriptedBrain, TimidBrain
from runners.werewolf.game import Action, Observation


class Brain(Protocol):
    """Chooses a seat's actions from its observations alone."""

    def act(self, observation: Observation) -> Action:
        """A legal action for ``observation.request``. Raises ValueError without a request."""


NewBrain = Callable[[Random], Brain]

BRAINS: Mapping[str, NewBrain] = {
    "expert": ExpertBrain,
    "patient": PatientBrain,
    "scripted": ScriptedBrain,
    "timid": TimidBrain,
    "random": RandomBrain,
    "poser": PoserBrain,
    "follower": FollowerBrain,
}
"""By the names that tasks use: ``store.players.PLAYERS_WITHOUT_A_MODEL``, ``configs.sections.opponents``."""
