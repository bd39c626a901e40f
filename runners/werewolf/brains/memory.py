"""What one scripted player remembers of a game: small sets, learned from events and from words of speeches."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from runners.werewolf.game import SPEECHES, Event, EventKind, Role, Side
from runners.werewolf.language.speech import understand, understand_wolf

HIDDEN_GODS = (Role.WITCH, Role.HUNTER, Role.GUARD)
"""神职 that seldom reveal themselves; the seer is looked at apart from them, through its claims."""


@dataclass(slots=True)
class TableMemory:
    """What a seat has learned. To learn the same events again changes nothing.

    deck: role -> how many were dealt.
    team: the wolves, for a wolf; empty for others.
    reports: (night, seat, side) of each check that this seat stands by: a seer's true ones, a posing wolf's inventions.
    plan: whom this seat said it would check next (警徽流).
    saved, poisoned: on whom this seat used its potions.
    claims: seat that called itself the seer -> what it reported, by seat; in the order of the first claims.
    claimed_on: the same seats -> the day on which each first did.
    spoken: seats that have spoken in public.
    planned: the same seats -> (day, whom each said then, for the last time, it would check next) (警徽流).
    gods: seat that called itself another of the 神职 -> that role.
    vouched: (witch, seat): whom a claimed witch says she saved. slain: (witch, seat): whom one says she poisoned.
    pretenders: seats that claimed a role that nobody was dealt, or two roles; of such a claim nothing else is learned.
    followed: speaker -> the seat that it last called the seer.
    attacks: (voter, target) of every exile vote.
    night_deaths: seat -> (day, how many died in the same night). gone: all that are dead.
    over: whether the game has ended.
    exploded: seats that showed themselves as wolves. shooters: seats that shot.
    accusations: (speaker, accused), today. asked: (speaker, seat) -> whom the speaker told the seat to vote for, today.
    rallied: whom the sheriff wants exiled today.
    proposals: wolf -> the victim that it proposed first tonight. poser: the wolf that is to pose as the seer.

    And what it drew for itself, so that it stays of one mind.
    hunches: seat -> how it strikes this player, between 0 and 1. resolves: (purpose, day; 0 for the game) -> the draw.
    cover: the good role that a wolf pretends to have. shown: the role, other than a villager, that it said it has.
    """

    deck: Counter[Role] = field(default_factory=Counter)
    team: set[int] = field(default_factory=set)
    reports: list[tuple[int, int, Side]] = field(default_factory=list)
    plan: tuple[int, ...] = ()
    saved: int | None = None
    poisoned: int | None = None
    claims: dict[int, dict[int, Side]] = field(default_factory=dict)
    claimed_on: dict[int, int] = field(default_factory=dict)
    spoken: set[int] = field(default_factory=set)
    planned: dict[int, tuple[int, tuple[int, ...]]] = field(default_factory=dict)
    gods: dict[int, Role] = field(default_factory=dict)
    vouched: set[tuple[int, int]] = field(default_factory=set)
    slain: set[tuple[int, int]] = field(default_factory=set)
    pretenders: set[int] = field(default_factory=set)
    followed: dict[int, int] = field(default_factory=dict)
    attacks: set[tuple[int, int]] = field(default_factory=set)
    night_deaths: dict[int, tuple[int, int]] = field(default_factory=dict)
    gone: set[int] = field(default_factory=set)
    over: bool = False
    exploded: set[int] = field(default_factory=set)
    shooters: set[int] = field(default_factory=set)
    accusations: set[tuple[int, int]] = field(default_factory=set)
    asked: dict[tuple[int, int], int] = field(default_factory=dict)
    rallied: int | None = None
    proposals: dict[int, int] = field(default_factory=dict)
    poser: int | None = None
    hunches: dict[int, float] = field(default_factory=dict)
    resolves: dict[tuple[str, int], float] = field(default_factory=dict)
    cover: Role | None = None
    shown: Role | None = None

    def learn(self, events: Iterable[Event], seat: int, deck: Sequence[Role]) -> None:
        """Take in what ``seat`` was told, oldest first; its own public words it knows already.

        deck: the roles that were dealt.
        """
        if not self.deck:
            self.deck = Counter(deck)
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
                self.gone.update(event.seats)
            case EventKind.EXILED:
                self.gone.add(event.target)
            case EventKind.GAME_OVER:
                self.over = True
            case EventKind.SHOT:
                self.shooters.add(event.seat)
                self.gone.add(event.target)
            case EventKind.EXPLODED:
                self.exploded.add(event.seat)
                self.gone.add(event.seat)
            case EventKind.VOTE if event.target is not None:
                self.attacks.add((event.seat, event.target))
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
        self.spoken.add(speaker)
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
