"""A scripted player's memory of a game, from events and speeches."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from runners.werewolf.game import SPEECHES, Event, EventKind, Role, Side
from runners.werewolf.language.speech import understand, understand_wolf

HIDDEN_GODS = tuple(role for role in Role if role.is_god and role is not Role.SEER)
"""神职 that seldom reveal themselves; the seer is looked at apart from them, through its claims."""


@dataclass(slots=True)
class TableMemory:
    """A seat's knowledge. Learning is idempotent."""

    deck: Counter[Role] = field(default_factory=Counter)
    team: set[int] = field(default_factory=set)  # the wolves, for a wolf
    # (night, seat, side) of each check that this seat stands by: a seer's true ones, a posing wolf's inventions.
    reports: list[tuple[int, int, Side]] = field(default_factory=list)
    plan: tuple[int, ...] = ()  # whom this seat said it would check next (警徽流)
    saved: int | None = None  # on whom this seat used its potions
    poisoned: int | None = None
    # Of each seat that called itself the seer, in the order of the first claims: what it reported, by seat; the day on
    # which it first did; (day, whom it said then, for the last time, it would check next).
    claims: dict[int, dict[int, Side]] = field(default_factory=dict)
    claimed_on: dict[int, int] = field(default_factory=dict)
    planned: dict[int, tuple[int, tuple[int, ...]]] = field(default_factory=dict)
    spoken: dict[int, int] = field(default_factory=dict)  # seat -> the last day on which it spoke in public
    gods: dict[int, Role] = field(default_factory=dict)  # seat -> another of the 神职 that it called itself
    vouched: set[tuple[int, int]] = field(default_factory=set)  # (claimed witch, whom she says she saved)
    slain: set[tuple[int, int]] = field(default_factory=set)  # (claimed witch, whom she says she poisoned)
    # Seats that claimed a role that nobody was dealt, or two roles; of such a claim nothing else is learned.
    pretenders: set[int] = field(default_factory=set)
    followed: dict[int, int] = field(default_factory=dict)  # speaker -> the seat that it last called the seer
    attacks: set[tuple[int, int]] = field(default_factory=set)  # (voter, target) of every exile vote
    night_deaths: dict[int, tuple[int, int]] = field(default_factory=dict)  # (day, how many died in that night)
    gone: set[int] = field(default_factory=set)  # all that are dead
    over: bool = False
    exploded: set[int] = field(default_factory=set)
    shooters: set[int] = field(default_factory=set)
    cards: dict[int, Role] = field(default_factory=dict)  # seats that showed their card to all
    proven: dict[int, Side] = field(default_factory=dict)  # seats whose side all know
    # Of today: (speaker, accused); (speaker, seat) -> whom the seat was told to vote for; 归票; wolf -> its first prey.
    accusations: set[tuple[int, int]] = field(default_factory=set)
    asked: dict[tuple[int, int], int] = field(default_factory=dict)
    rallied: int | None = None
    stage: tuple[int, ...] = ()  # whose votes are tied
    proposals: dict[int, int] = field(default_factory=dict)
    poser: int | None = None  # the wolf that is to pose as the seer
    # What it drew for itself, so that it stays of one mind: how each seat strikes it, from 0 to 1; (purpose, day, or
    # 0 for the game) -> the draw; the good role that a wolf pretends to have; what role but villager it said it has;
    # what else it said -> (day, decision) of the speech in which it first did.
    hunches: dict[int, float] = field(default_factory=dict)
    resolves: dict[tuple[str, int], float] = field(default_factory=dict)
    cover: Role | None = None
    shown: Role | None = None
    told: dict[object, tuple[int, str]] = field(default_factory=dict)

    def learn(self, events: Iterable[Event], seat: int, deck: Sequence[Role]) -> None:
        """Learn from ``seat``'s new events, oldest first, except its own speeches."""
        self.deck = self.deck or Counter(deck)
        for event in events:
            if event.kind not in SPEECHES:
                self._learn(event)
            elif event.seat != seat:
                self._hear(event)

    @property
    def found(self) -> dict[int, Side]:
        """The checks that this seat stands by, by seat."""
        return {seat: side for _, seat, side in self.reports}

    def _learn(self, event: Event) -> None:
        self.gone.update(event.dead)
        if event.audience is None and "role" in event.data:
            shows, role = event.target if event.seat is None else event.seat, Role(event.data["role"])
            self.cards[shows], self.proven[shows] = role, role.side
            if role.is_god:
                self.gods[shows] = role
        if event.audience is None and "side" in event.data:
            self.proven[event.target] = Side(event.data["side"])
        match event.kind:
            case EventKind.NIGHT_FALLS:
                self.accusations.clear()
                self.asked.clear()
                self.proposals.clear()
                self.rallied = None
            case EventKind.WOLF_TEAM:
                self.team.update(event.seats)
            case EventKind.WOLF_SAYS:
                prey, poser = understand_wolf(event.text, event.seat)
                proposal = prey if event.target is None else event.target
                if proposal is not None:
                    self.proposals.setdefault(event.seat, proposal)
                if poser in self.team:
                    self.poser = poser
            case EventKind.SEER_RESULT:
                report = (event.day, event.target, Side(event.data["side"]))
                if report not in self.reports:
                    self.reports.append(report)
            case EventKind.ANTIDOTE_USED:
                self.saved = event.target
            case EventKind.POISON_USED:
                self.poisoned = event.target
            case EventKind.DEATHS_ANNOUNCED:
                self.night_deaths |= {seat: (event.day, len(event.seats)) for seat in event.seats}
            case EventKind.GAME_OVER:
                self.over = True
            case EventKind.SHOT:
                self.shooters.add(event.seat)
            case EventKind.EXPLODED:
                self.exploded.add(event.seat)
            case EventKind.VOTE if event.target is not None:
                self.attacks.add((event.seat, event.target))
            case EventKind.VOTE_TIED:
                self.stage = event.seats
            case EventKind.BADGE_PASSED | EventKind.BADGE_TORN:
                self._read_badge(event)

    def _read_badge(self, event: Event) -> None:
        """A seer killed by night tells with its badge what it found of the first that it wanted to check."""
        seer, day = event.seat, event.day
        if self.night_deaths.get(seer, (0, 0))[0] != day or seer not in self.planned:
            return
        planned_on, (first, *_) = self.planned[seer]
        died_before = first in self.gone and self.night_deaths.get(first, (0, 0))[0] != day
        if planned_on < day and not died_before:
            self.claims[seer].setdefault(first, Side.GOOD if event.target == first else Side.WOLF)

    def _hear(self, event: Event) -> None:
        heard, speaker = understand(event.text), event.seat
        claimed = heard.claimed
        self.spoken[speaker] = event.day
        if claimed in (Role.SEER, *HIDDEN_GODS):
            before = Role.SEER if speaker in self.claims else self.gods.get(speaker)
            if not self.deck[claimed] or before not in (None, claimed):
                self.pretenders.add(speaker)
            if self.deck[claimed] and claimed is Role.SEER:
                self.claims.setdefault(speaker, {})
                self.claimed_on.setdefault(speaker, event.day)
            elif self.deck[claimed]:
                self.gods[speaker] = claimed
        if speaker in self.claims:
            # Its own night tells it nothing of itself; and a claim stands until the speaker claims otherwise.
            self.claims[speaker].update((seat, side) for seat, side in heard.reports if seat != speaker)
            if heard.next_checks:
                self.planned[speaker] = (event.day, heard.next_checks)
        if claimed is Role.WITCH and self.deck[claimed]:
            self.vouched.update((speaker, seat) for seat in heard.saved)
            self.slain.update((speaker, seat) for seat in heard.poisoned)
        if heard.followed is not None:
            self.followed[speaker] = heard.followed
        self.accusations.update((speaker, accused) for accused in heard.accused)
        self.asked |= {(speaker, seat): whom for seat, whom in heard.asked}
        if event.target is not None:  # 归票, whatever the words were
            self.rallied = event.target
            self.accusations.add((speaker, event.target))
