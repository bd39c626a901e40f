"""What one scripted player remembers of a game: small sets, learned from events and from words of speeches."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from runners.werewolf.game import Event, EventKind, Role, Side
from runners.werewolf.prompts_zh.talk import understand, understand_wolf

HIDDEN_GODS = (Role.WITCH, Role.HUNTER, Role.GUARD)
"""神职 that seldom reveal themselves; the seer is looked at apart from them, through its claims."""


@dataclass(slots=True)
class TableMemory:
    """What a seat has learned. To learn the same events again changes nothing.

    deck: the roles that were dealt.
    team: the wolves, for a wolf; empty for others.
    reports: (night, seat, side) of each check that this seat stands by: a seer's true ones, a posing wolf's inventions.
    saved, poisoned: on whom this seat used its potions.
    claims: seat that called itself the seer -> what it reported, by seat; in the order of the first claims.
    gods: seat that called itself another of the 神职 -> that role.
    vouched: (witch, seat): whom a claimed witch says she saved. slain: (witch, seat): whom one says she poisoned.
    pretenders: seats that claimed a role that nobody was dealt; of such a claim nothing else is learned.
    followed: speaker -> the seat that it last called the seer.
    attacks: (voter, target) of every exile vote.
    night_deaths: seat -> how many died in the same night. exploded: seats that showed themselves as wolves.
    accusations: (speaker, accused), today. rallied: whom the sheriff wants exiled today.
    proposals: wolf -> the victim that it proposed first tonight. poser: the wolf that is to pose as the seer.
    """

    deck: frozenset[Role] = frozenset()
    team: set[int] = field(default_factory=set)
    reports: list[tuple[int, int, Side]] = field(default_factory=list)
    saved: int | None = None
    poisoned: int | None = None
    claims: dict[int, dict[int, Side]] = field(default_factory=dict)
    gods: dict[int, Role] = field(default_factory=dict)
    vouched: set[tuple[int, int]] = field(default_factory=set)
    slain: set[tuple[int, int]] = field(default_factory=set)
    pretenders: set[int] = field(default_factory=set)
    followed: dict[int, int] = field(default_factory=dict)
    attacks: set[tuple[int, int]] = field(default_factory=set)
    night_deaths: dict[int, int] = field(default_factory=dict)
    exploded: set[int] = field(default_factory=set)
    accusations: set[tuple[int, int]] = field(default_factory=set)
    rallied: int | None = None
    proposals: dict[int, int] = field(default_factory=dict)
    poser: int | None = None

    def learn(self, events: Iterable[Event], seat: int, deck: Collection[Role]) -> None:
        """Take in what ``seat`` was told, oldest first; its own public words it knows already.

        deck: the roles that were dealt.
        """
        self.deck = frozenset(deck)
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
    memory.proposals.clear()
    memory.rallied = None


def _meet_team(memory: TableMemory, event: Event) -> None:
    memory.team.update(event.seats)


def _hear_wolf(memory: TableMemory, event: Event) -> None:
    prey, poser = understand_wolf(event.text)
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
        memory.night_deaths[seat] = len(event.seats)


def _explode(memory: TableMemory, event: Event) -> None:
    memory.exploded.add(event.seat)


def _vote(memory: TableMemory, event: Event) -> None:
    if event.target is not None:
        memory.attacks.add((event.seat, event.target))


def _hear(memory: TableMemory, event: Event) -> None:
    heard = understand(event.text)
    speaker = event.seat
    dealt = heard.claimed in memory.deck
    if heard.claimed is not None and not dealt:
        memory.pretenders.add(speaker)
    elif heard.claimed is Role.SEER:
        memory.claims.setdefault(speaker, {}).update(heard.reports)
    elif heard.claimed in HIDDEN_GODS:
        memory.gods[speaker] = heard.claimed
    if heard.claimed is Role.WITCH and dealt:
        memory.vouched.update((speaker, seat) for seat in heard.saved)
        memory.slain.update((speaker, seat) for seat in heard.poisoned)
    if heard.followed is not None:
        memory.followed[speaker] = heard.followed
    memory.accusations.update((speaker, accused) for accused in heard.accused)
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
    EventKind.EXPLODED: _explode,
    EventKind.VOTE: _vote,
}
