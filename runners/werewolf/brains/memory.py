"""What one scripted player remembers of a game: small sets, learned from events and from words of speeches."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from runners.werewolf.game import Event, EventKind, Role, Side
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

    def learn(self, events: Iterable[Event], seat: int, deck: Sequence[Role]) -> None:
        """Take in what ``seat`` was told, oldest first; its own public words it knows already.

        deck: the roles that were dealt.
        """
        if not self.deck:
            self.deck = Counter(deck)
        for event in events:
            lesson = _LESSONS.get(event.kind)
            if lesson is not None and (event.seat != seat or event.kind not in _SPEECHES):
                lesson(self, event)

    @property
    def found(self) -> dict[int, Side]:
        """The checks that this seat stands by, by seat."""
        return {seat: side for _, seat, side in self.reports}


def _night_falls(memory: TableMemory, event: Event) -> None:
    memory.accusations.clear()
    memory.asked.clear()
    memory.proposals.clear()
    memory.rallied = None


def _meet_team(memory: TableMemory, event: Event) -> None:
    memory.team.update(event.seats)


def _hear_wolf(memory: TableMemory, event: Event) -> None:
    prey, poser = understand_wolf(event.text, event.seat)
    proposal = prey if event.target is None else event.target
    if proposal is not None:
        memory.proposals.setdefault(event.seat, proposal)
    if poser in memory.team:
        memory.poser = poser


def _check(memory: TableMemory, event: Event) -> None:
    report = (event.day, event.target, Side(event.data["side"]))
    if report not in memory.reports:
        memory.reports.append(report)


def _use_antidote(memory: TableMemory, event: Event) -> None:
    memory.saved = event.target


def _use_poison(memory: TableMemory, event: Event) -> None:
    memory.poisoned = event.target


def _announce_deaths(memory: TableMemory, event: Event) -> None:
    for seat in event.seats:
        memory.night_deaths[seat] = (event.day, len(event.seats))
    memory.gone.update(event.seats)


def _exile(memory: TableMemory, event: Event) -> None:
    memory.gone.add(event.target)


def _end(memory: TableMemory, event: Event) -> None:
    memory.over = True


def _shoot(memory: TableMemory, event: Event) -> None:
    memory.shooters.add(event.seat)
    memory.gone.add(event.target)


def _explode(memory: TableMemory, event: Event) -> None:
    memory.exploded.add(event.seat)
    memory.gone.add(event.seat)


def _vote(memory: TableMemory, event: Event) -> None:
    if event.target is not None:
        memory.attacks.add((event.seat, event.target))


def _read_badge(memory: TableMemory, event: Event) -> None:
    """A seer killed by night tells with its badge what it found of the first that it wanted to check."""
    seer = event.seat
    day, killed_on = event.day, memory.night_deaths.get(seer, (0, 0))[0]
    if killed_on != day or seer not in memory.planned:
        return
    planned_on, (first, *_) = memory.planned[seer]
    died_before = first in memory.gone and memory.night_deaths.get(first, (0, 0))[0] != day
    if planned_on < day and not died_before:
        memory.claims[seer].setdefault(first, Side.GOOD if event.target == first else Side.WOLF)


def _hear(memory: TableMemory, event: Event) -> None:
    heard = understand(event.text)
    speaker = event.seat
    claimed = heard.claimed
    memory.spoken.add(speaker)
    if claimed in (Role.SEER, *HIDDEN_GODS):
        before = Role.SEER if speaker in memory.claims else memory.gods.get(speaker)
        if not memory.deck[claimed] or before not in (None, claimed):
            memory.pretenders.add(speaker)
        if memory.deck[claimed]:
            if claimed is Role.SEER:
                memory.claims.setdefault(speaker, {})
                memory.claimed_on.setdefault(speaker, event.day)
            else:
                memory.gods[speaker] = claimed
    if speaker in memory.claims:
        # Its own night tells it nothing of itself; and a claim stands until the speaker claims otherwise.
        memory.claims[speaker].update((seat, side) for seat, side in heard.reports if seat != speaker)
        if heard.next_checks:
            memory.planned[speaker] = (event.day, heard.next_checks)
    if claimed is Role.WITCH and memory.deck[claimed]:
        memory.vouched.update((speaker, seat) for seat in heard.saved)
        memory.slain.update((speaker, seat) for seat in heard.poisoned)
    if heard.followed is not None:
        memory.followed[speaker] = heard.followed
    for accused in heard.accused:
        memory.accusations.add((speaker, accused))
    memory.asked |= {(speaker, seat): whom for seat, whom in heard.asked}
    if event.target is not None:  # 归票, whatever the words were
        memory.rallied = event.target
        memory.accusations.add((speaker, event.target))


_SPEECHES: Mapping[EventKind, Callable[[TableMemory, Event], None]] = {
    EventKind.CAMPAIGN_SPEECH: _hear,
    EventKind.SHERIFF_PK_SPEECH: _hear,
    EventKind.SPEECH: _hear,
    EventKind.CLOSING_SPEECH: _hear,
    EventKind.PK_SPEECH: _hear,
    EventKind.LAST_WORDS: _hear,
}
_LESSONS: Mapping[EventKind, Callable[[TableMemory, Event], None]] = {
    **_SPEECHES,
    EventKind.NIGHT_FALLS: _night_falls,
    EventKind.WOLF_TEAM: _meet_team,
    EventKind.WOLF_SAYS: _hear_wolf,
    EventKind.SEER_RESULT: _check,
    EventKind.ANTIDOTE_USED: _use_antidote,
    EventKind.POISON_USED: _use_poison,
    EventKind.DEATHS_ANNOUNCED: _announce_deaths,
    EventKind.EXILED: _exile,
    EventKind.GAME_OVER: _end,
    EventKind.SHOT: _shoot,
    EventKind.EXPLODED: _explode,
    EventKind.VOTE: _vote,
    EventKind.BADGE_PASSED: _read_badge,
    EventKind.BADGE_TORN: _read_badge,
}
