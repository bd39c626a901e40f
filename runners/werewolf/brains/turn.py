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

    me: the seat that answers. others: living seats but for it, ascending.
    believe: gives what it believes (``beliefs.Beliefs``) with the role that it has or pretends to have.
    """

    observation: Observation
    request: Request
    memory: TableMemory
    chance: Random
    me: int
    others: tuple[int, ...]
    believe: "Callable[[Turn, Role], Any]"

    def hunch(self, seat: int) -> float:
        """How ``seat`` strikes this player, between 0 and 1, for the whole game."""
        return self._drawn(self.memory.hunches, seat)

    def resolves(self, purpose: str, rate: float, day: int = 0) -> bool:
        """Whether it will do something, which it draws once with probability ``rate``; on one day, or in this game."""
        return self._drawn(self.memory.resolves, (purpose, day)) < rate

    def resolves_today(self, purpose: str, rate: float) -> bool:
        """Whether it will do something today."""
        return self.resolves(purpose, rate, self.request.day)

    def has_told(self, what: object) -> bool:
        """Whether it has said ``what`` in an earlier speech; it says so now."""
        now = self.request.day, self.request.decision
        return self.memory.told.setdefault(what, now) != now

    @property
    def own_rally(self) -> int | None:
        """Whom it called for votes against today, as the sheriff."""
        rallied = self.memory.rallied
        return rallied if self.observation.sheriff == self.me and rallied in self.request.targets else None

    def _drawn(self, drawn: dict[Any, float], key: object) -> float:
        if key not in drawn:
            drawn[key] = self.chance.random()
        return drawn[key]

    def pick(self, *tiers: Iterable[int]) -> int | None:
        """Any seat of the first of ``tiers`` that has one; None if all are empty."""
        for tier in tiers:
            seats = sorted(tier)
            if seats:
                return self.chance.choice(seats)
        return None

    def say(self, templates: Sequence[str], **about: object) -> str:
        """One of ``templates``, its slots filled in."""
        return saying.say(self.chance, templates, self.request.speech_chars, **about)

    def speech(self, sentences: Iterable[str], choice: Choice = None) -> Action:
        """The sentences that fit, with a choice."""
        return Action(choice, saying.fit_together(sentences, self.request.speech_chars))
