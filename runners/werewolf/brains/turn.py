"""One turn of a scripted player: observation, memory and random generator."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from runners.werewolf.brains.memory import TableMemory
from runners.werewolf.game import Action, Choice, Observation, Request, Role
from runners.werewolf.language import saying


@dataclass(frozen=True, slots=True)
class Turn:
    """The inputs of an answer.

    me: the seat that answers. others: the other living seats, ascending.
    believe: returns its ``beliefs.Beliefs``, given its own role or the one that it pretends to have.
    """

    observation: Observation
    request: Request
    memory: TableMemory
    chance: Random
    me: int
    others: tuple[int, ...]
    believe: "Callable[[Turn, Role], Any]"

    def hunch(self, seat: int) -> float:
        """A draw between 0 and 1 that lasts all game: arbitrary suspicion of ``seat``."""
        return self._drawn(self.memory.hunches, seat)

    def resolves(self, purpose: str, rate: float, day: int = 0) -> bool:
        """A decision drawn once with probability ``rate``; for ``day``, or for the game if 0."""
        return self._drawn(self.memory.resolves, (purpose, day)) < rate

    def resolves_today(self, purpose: str, rate: float) -> bool:
        return self.resolves(purpose, rate, self.request.day)

    def has_said(self, statement: object) -> bool:
        """Whether an earlier speech had ``statement``; records it for the current speech."""
        now = self.request.day, self.request.decision
        return self.memory.said.setdefault(statement, now) != now

    @property
    def own_rally(self) -> int | None:
        """Its target of today as the sheriff (归票), if still eligible."""
        rallied = self.memory.rallied
        return rallied if self.observation.sheriff == self.me and rallied in self.request.targets else None

    def _drawn(self, drawn: dict[Any, float], key: object) -> float:
        if key not in drawn:
            drawn[key] = self.chance.random()
        return drawn[key]

    def pick(self, *tiers: Iterable[int]) -> int | None:
        """A random seat of the first tier that is not empty; None if all are."""
        for tier in tiers:
            seats = sorted(tier)
            if seats:
                return self.chance.choice(seats)
        return None

    def say(self, templates: Sequence[str], **about: object) -> str:
        return saying.say(self.chance, templates, self.request.speech_chars, **about)

    def speech(self, sentences: Iterable[str], choice: Choice = None) -> Action:
        """The sentences that fit, with a choice."""
        return Action(choice, saying.fit_together(sentences, self.request.speech_chars))
