"""The state of a game, and helpers of all phases.

Functions here and in the modules of the phases modify the state in place; ``rules.apply`` passes them a copy.
"""

import random
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from configs.roles_and_decks import keyed_generator
from runners.werewolf.game.presets import Preset
from runners.werewolf.game.roles import CARDS
from runners.werewolf.game.types import Action, BadgeLost, Event, EventKind, Phase, Result, Role, Side

Chosen = TypeVar("Chosen", int, int | None)


@dataclass(frozen=True, slots=True)
class Night:
    """Decisions of one night."""

    victim: int | None = None  # the wolves' target; None before they decide, and for 空刀
    agreed: bool = False  # whether the wolves' talk settled the victim, so that they do not vote
    guarded: int | None = None  # None for 空守 or without a guard
    saved: bool = False  # whether the antidote was used
    poisoned: int | None = None

    @property
    def deaths(self) -> tuple[int, ...]:
        """Seats that die in this night, ascending. A victim that is guarded and saved at once dies (同守同救)."""
        guarded = self.guarded == self.victim
        dies = guarded if self.saved else not guarded
        return tuple(sorted(seat for seat in {self.victim if dies else None, self.poisoned} if seat is not None))


@dataclass(frozen=True, slots=True)
class Election:
    """The sheriff's election while it is not over."""

    signed_up: tuple[int, ...] = ()  # seats that ran, ascending
    withdrawn: frozenset[int] = frozenset()  # those of them that withdrew since (退水)
    put_off: bool = False  # whether an explosion moved it to the next day, as a plain vote


@dataclass(frozen=True, slots=True)
class PublicView:
    """The part of the state that is public."""

    day: int
    phase: Phase
    living: frozenset[int]
    sheriff: int | None
    events: int  # number of the state's events before it


@dataclass(slots=True)
class GameState:
    """Everything about one game. Treat it as immutable. Players see ``view.observe`` of it only."""

    preset: Preset
    seed: int
    roles: tuple[Role, ...]  # seat N's is ``roles[N - 1]`` (``role_of``)
    living: frozenset[int]  # as publicly known: with last night's dead until they are announced
    seen: tuple[int, ...]  # for each seat, number of ``events`` at its last answer
    election: Election | None  # None once it is over, and in a preset without sheriff
    day: int = 0  # number of the current night or day, from 1
    phase: Phase = Phase.NIGHTFALL
    waiting: tuple[int, ...] = ()  # seats still to ask in this phase, in order
    tied: tuple[int, ...] = ()  # seats on the PK stage
    night: Night = Night()  # decisions of last night (by day) or so far (by night)
    last_guarded: int | None = None  # the guard's target of the night before
    antidote: bool = True  # whether the witch has it; true without a witch
    poison: bool = True
    proposals: tuple[int | None, ...] = ()  # of this round of the wolves' talk, by speaker
    unannounced: tuple[int, ...] = ()  # last night's dead
    sheriff: int | None = None  # holder of the badge, a dead seat until it is passed on
    revealed: frozenset[int] = frozenset()  # 白痴 that survived a vote: they neither vote nor receive votes
    last_words: tuple[int, ...] = ()  # seats still to speak them
    shooters: tuple[int, ...] = ()  # dead seats that may still shoot
    resume: Phase = Phase.NIGHTFALL  # the phase after the aftermath
    events: tuple[Event, ...] = field(default=(), repr=False)  # oldest first
    # The public view; unchanged while a secret request is pending. None before the start.
    public: PublicView | None = None
    result: Result | None = None  # None while the game runs

    def role_of(self, seat: int) -> Role:
        return self.roles[seat - 1]

    @property
    def living_wolves(self) -> tuple[int, ...]:
        """Living seats of the wolves' side, ascending."""
        return tuple(seat for seat in sorted(self.living) if self.roles[seat - 1].side is Side.WOLF)

    @property
    def voting(self) -> frozenset[int]:
        """Living seats that may vote on an exile and receive votes."""
        return self.living - self.revealed

    def living_with(self, role: Role) -> tuple[int, ...]:
        """Living seats with ``role``, ascending."""
        return tuple(seat for seat in sorted(self.living) if self.roles[seat - 1] is role)


def log(
    state: GameState,
    kind: EventKind,
    *,
    audience: Iterable[int] | None = None,
    seat: int | None = None,
    target: int | None = None,
    text: str = "",
    **data: str,
) -> None:
    """Append an event; without ``audience`` it is public."""
    heard_by = None if audience is None else frozenset(audience)
    # Events before the first night have its number.
    event = Event(kind, max(state.day, 1), heard_by, seat, target, text, data)
    state.events = (*state.events, event)


def join(seats: Iterable[int]) -> str:
    """Seats as text for an event's ``data``."""
    return ",".join(map(str, seats))


def generator(state: GameState, purpose: str) -> random.Random:
    """Generator for one purpose on one day, so that one draw never shifts another."""
    return keyed_generator(state.seed, purpose, state.day)


def drawn_order(state: GameState, seats: tuple[int, ...], purpose: str) -> tuple[int, ...]:
    """``seats`` (ascending) round the table from a drawn seat, in a drawn direction."""
    chance = generator(state, purpose)
    start = chance.randrange(len(seats))
    order = seats[start:] + seats[:start]
    return order if chance.random() < 0.5 else order[:1] + order[:0:-1]


def leaders(counts: Mapping[Chosen, int]) -> tuple[Chosen, ...]:
    """Options with the highest count, seats ascending, then None; empty without counts."""
    most = max(counts.values(), default=0)
    return tuple(sorted((option for option in counts if counts[option] == most), key=lambda o: (o is None, o or 0)))


def count_ballot(state: GameState, kind: EventKind, actions: Mapping[int, Action]) -> tuple[int, ...]:
    """Reveal all votes and their count; returns the seats with the most, none if all abstained.

    kind: VOTE or SHERIFF_VOTE.
    """
    counts: Counter[int] = Counter()  # in half votes, so that the sheriff's 1.5 votes stay exact
    for voter in sorted(actions):
        target = actions[voter].seat
        log(state, kind, seat=voter, target=target)
        if target is not None:
            counts[target] += 3 if voter == state.sheriff else 2
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    log(state, EventKind.VOTE_COUNT, count=",".join(f"{seat}:{half / 2:g}" for seat, half in ranked))
    most = leaders(counts)
    if len(most) > 1:
        log(state, EventKind.VOTE_TIED, seats=join(most))
    return most


def with_explosive(state: GameState, seats: Iterable[int], among: Collection[int]) -> tuple[int, ...]:
    """``seats`` and the living seats in ``among`` that may explode (自爆), ascending, with last night's dead until they
    are announced, since a missing option would reveal a death."""
    explosive = (seat for seat in state.living.intersection(among) if state.preset.may_explode(state.role_of(seat)))
    return tuple(sorted({*seats, *explosive}))


def log_speeches(state: GameState, kind: EventKind, actions: Mapping[int, Action]) -> None:
    """Log each speech as a public event."""
    for seat, action in actions.items():
        log(state, kind, seat=seat, text=action.text)


def lose_badge(state: GameState, reason: BadgeLost) -> None:
    """End the election without a sheriff (警徽流失)."""
    state.election = None
    log(state, EventKind.BADGE_LOST, reason=reason.value)


def bury(state: GameState, deaths: Iterable[int], *, unable_to_shoot: Iterable[int] = ()) -> None:
    """Remove ``deaths`` from the living; hunters and wolf kings may shoot, except ``unable_to_shoot``."""
    dead = [seat for seat in deaths if seat in state.living]
    state.living = state.living.difference(dead)
    unable = set(unable_to_shoot)
    state.shooters += tuple(seat for seat in dead if CARDS[state.role_of(seat)].shoots and seat not in unable)
