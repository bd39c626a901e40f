"""A scripted player's memory of a game, from events and speeches."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from runners.werewolf.game import SPEECHES, Event, EventKind, Role, Side
from runners.werewolf.language.speech import understand, understand_wolf

HIDDEN_GODS = tuple(role for role in Role if role.is_god and role is not Role.SEER)
"""神职 that seldom reveal themselves: all but the seer."""


@dataclass(slots=True)
class TableMemory:
    """A seat's knowledge; to learn an event twice changes nothing."""

    deck: Counter[Role] = field(default_factory=Counter)
    team: set[int] = field(default_factory=set)  # all wolves; empty for a good seat
    # (night, seat, side) of each check that this seat reports: a seer's results, a posing wolf's inventions.
    reports: list[tuple[int, int, Side]] = field(default_factory=list)
    plan: tuple[int, ...] = ()  # seats that this seat announced to check next (警徽流)
    saved: int | None = None  # target of its antidote
    poisoned: int | None = None  # target of its poison
    # By seat that claimed to be the seer, in the order of the first claims: its reports; the day of its first claim;
    # (day, seats) of the last checks that it announced.
    claims: dict[int, dict[int, Side]] = field(default_factory=dict)
    claimed_on: dict[int, int] = field(default_factory=dict)
    planned: dict[int, tuple[int, tuple[int, ...]]] = field(default_factory=dict)
    spoken: dict[int, int] = field(default_factory=dict)  # seat -> day of its last public speech
    unclaimed: set[int] = field(default_factory=set)  # seats whose first public speech did not claim to be the seer
    gods: dict[int, Role] = field(default_factory=dict)  # seat -> claimed 神职 other than the seer
    vouched: set[tuple[int, int]] = field(default_factory=set)  # (claimed witch, reported target of her antidote)
    slain: set[tuple[int, int]] = field(default_factory=set)  # (claimed witch, reported target of her poison)
    # Seats that claimed a role that is not in the deck, or two roles; the rest of such a claim is ignored.
    pretenders: set[int] = field(default_factory=set)
    followed: dict[int, int] = field(default_factory=dict)  # speaker -> seat that it last called the seer
    attacks: set[tuple[int, int]] = field(default_factory=set)  # (voter, target) of every exile vote
    night_deaths: dict[int, tuple[int, int]] = field(default_factory=dict)  # seat -> (day, deaths in that night)
    gone: set[int] = field(default_factory=set)  # dead seats
    over: bool = False
    exploded: set[int] = field(default_factory=set)
    shooters: set[int] = field(default_factory=set)
    cards: dict[int, Role] = field(default_factory=dict)  # seats that showed their card
    proven: dict[int, Side] = field(default_factory=dict)  # seats of publicly proven side
    accusations: set[tuple[int, int]] = field(default_factory=set)  # (speaker, accused) of today
    requested_votes: dict[tuple[int, int], int] = field(default_factory=dict)  # (speaker, seat) -> target, of today
    rallied: int | None = None  # the sheriff's target of today (归票)
    stage: tuple[int, ...] = ()  # seats tied in the last vote
    proposals: dict[int, int] = field(default_factory=dict)  # wolf -> first victim that it proposed tonight
    poser: int | None = None  # the wolf sent to pose as the seer
    hunches: dict[int, float] = field(default_factory=dict)  # seat -> draw from 0 to 1 that lasts all game
    resolves: dict[tuple[str, int], float] = field(default_factory=dict)  # (purpose, day, or 0 for the game) -> draw
    cover: Role | None = None  # the good role that a wolf pretends to have
    shown: Role | None = None  # role that this seat claimed, except villager
    said: dict[object, tuple[int, str]] = field(default_factory=dict)  # statement -> (day, decision) of the first

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
        """Reported checks, by seat."""
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
                self.requested_votes.clear()
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
        """Read the badge of a seer killed by night, which reports its first planned check."""
        seer, day = event.seat, event.day
        if self.night_deaths.get(seer, (0, 0))[0] != day or seer not in self.planned:
            return
        planned_on, (first, *_) = self.planned[seer]
        if planned_on < day and first not in self.gone:  # a dead seat cannot get the badge, which then tells nothing
            self.claims[seer].setdefault(first, Side.GOOD if event.target == first else Side.WOLF)

    def _hear(self, event: Event) -> None:
        heard, speaker = understand(event.text), event.seat
        claimed = heard.claimed
        if speaker not in self.spoken and claimed is not Role.SEER:
            self.unclaimed.add(speaker)
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
            # A claim stands until the speaker withdraws it; a seer cannot check itself.
            self.claims[speaker].update((seat, side) for seat, side in heard.reports if seat != speaker)
            if heard.next_checks:
                self.planned[speaker] = (event.day, heard.next_checks)
        if claimed is Role.WITCH and self.deck[claimed]:
            self.vouched.update((speaker, seat) for seat in heard.saved)
            self.slain.update((speaker, seat) for seat in heard.poisoned)
        if heard.followed is not None:
            self.followed[speaker] = heard.followed
        self.accusations.update((speaker, accused) for accused in heard.accused)
        self.requested_votes |= {(speaker, seat): target for seat, target in heard.requested_votes}
        if event.target is not None:  # 归票 counts without a matching sentence
            self.rallied = event.target
            self.accusations.add((speaker, event.target))
