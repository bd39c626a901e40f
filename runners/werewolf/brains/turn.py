"""One turn of a scripted player: what it sees, what it remembers, and its own chance."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from runners.werewolf.brains.memory import TableMemory
from runners.werewolf.game import Decision, Observation, Request, Role, Side
from runners.werewolf.language import saying

REVEALING = frozenset({Decision.PK_SPEECH, Decision.LAST_WORDS})
"""Speeches in which nothing is left to lose by showing one's role."""


@dataclass(slots=True)
class Temper:
    """What a player drew for itself, so that it stays of one mind.

    hunches: seat -> how it strikes this player, between 0 and 1, for the whole game.
    resolves: (purpose, day) -> whether it will; day 0 holds for the whole game.
    cover: the good role that a wolf pretends to have; None before it drew one, and for others.
    shown: the role, other than a villager, that it has said it has.
    """

    hunches: dict[int, float] = field(default_factory=dict)
    resolves: dict[tuple[str, int], bool] = field(default_factory=dict)
    cover: Role | None = None
    shown: Role | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """Everything that an answer may depend on.

    me: the seat that answers. others: living seats but for it, ascending.
    believe: gives what it believes (``beliefs.Beliefs``) with the role that it has or pretends to have.
    """

    observation: Observation
    request: Request
    memory: TableMemory
    temper: Temper
    chance: Random
    me: int
    others: tuple[int, ...]
    believe: "Callable[[Turn, Role], Any]"

    def hunch(self, seat: int) -> float:
        """How ``seat`` strikes this player, between 0 and 1."""
        hunches = self.temper.hunches
        if seat not in hunches:
            hunches[seat] = self.chance.random()
        return hunches[seat]

    def resolves_today(self, purpose: str, rate: float) -> bool:
        """Whether it will do something today, drawn once a day with probability ``rate``."""
        return self._resolves(purpose, self.request.day, rate)

    def resolves(self, purpose: str, rate: float) -> bool:
        """Whether it will do something in this game, drawn once with probability ``rate``."""
        return self._resolves(purpose, 0, rate)

    def _resolves(self, purpose: str, day: int, rate: float) -> bool:
        resolves = self.temper.resolves
        key = (purpose, day)
        if key not in resolves:
            resolves[key] = self.chance.random() < rate
        return resolves[key]

    def pick(self, *tiers: Iterable[int]) -> int | None:
        """Any seat of the first of ``tiers`` that has one; None if all are empty."""
        for tier in tiers:
            seats = sorted(tier)
            if seats:
                return self.chance.choice(seats)
        return None

    def say(self, templates: Sequence[str], seat: int | None = None, **about: object) -> str:
        """One of ``templates``, about ``seat`` where it names one."""
        return saying.say(self.chance, templates, self.request.speech_chars, seat=seat, **about)

    def accuse(self, seat: int) -> str:
        """That it wants ``seat`` exiled, with a reason that fits what was heard."""
        claims = self.memory.claims
        if self.memory.found.get(seat) is Side.WOLF:
            return self.say(saying.ACCUSATIONS_OF_FINDS, seat)
        if seat in claims:
            names_me = claims[seat].get(self.me) is Side.WOLF
            return self.say(saying.ACCUSATIONS_OF_ACCUSERS if names_me else saying.ACCUSATIONS_OF_CLAIMANTS, seat)
        named = any(reports.get(seat) is Side.WOLF for reports in claims.values())
        return self.say(saying.ACCUSATIONS_OF_NAMED if named else saying.ACCUSATIONS, seat)


def question_of(observation: Observation) -> Request:
    """The question that ``observation`` asks; ValueError if it asks none."""
    if observation.request is None:
        raise ValueError(f"seat {observation.seat} is not asked anything")
    return observation.request
