"""The record of a finished game for evaluations: a pure function of its events."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from statistics import fmean

from runners.werewolf.brains.memory import TableMemory
from runners.werewolf.brains.odds import odds_of, wolf_odds
from runners.werewolf.game import SPEECHES, Event, EventKind, GameState, Role
from runners.werewolf.game.state import leaders
from runners.werewolf.language.speech import understand
from store.werewolf_study import BeliefRecord, ChoiceRecord, SpeechRecord, StudySpan, VoteRecord


def study_of(
    game_id: str, state: GameState, beliefs: Sequence[BeliefRecord], turns: Mapping[tuple[int, int], int]
) -> StudySpan:
    """The record of a game. beliefs: answers to probes.

    turns: (events before, seat) -> number of the seat's turn that said something then.
    """
    events = state.events
    return StudySpan(
        game_id=game_id,
        votes=tuple(_votes(state)),
        speeches=tuple(
            _speech(number, event, turns.get((number, event.seat)))
            for number, event in enumerate(events)
            if event.kind in SPEECHES and event.text
        ),
        kills=tuple(
            ChoiceRecord(day=event.day, target=event.target) for event in events if event.kind is EventKind.WOLF_TARGET
        ),
        checks=tuple(
            ChoiceRecord(day=event.day, seat=event.seat, target=event.target)
            for event in events
            if event.kind is EventKind.SEER_RESULT
        ),
        deaths=_deaths(events),
        beliefs=tuple(beliefs),
    )


def _speech(number: int, event: Event, turn: int | None) -> SpeechRecord:
    heard = understand(event.text)
    return SpeechRecord(
        at=number,
        day=event.day,
        seat=event.seat,
        turn=turn,
        claimed=None if heard.claimed is None else heard.claimed.value,
        reports=tuple((seat, side.value) for seat, side in heard.reports),
    )


def _deaths(events: Sequence[Event]) -> dict[int, int]:
    died: dict[int, int] = {}
    for event in events:
        for seat in event.dead:
            died.setdefault(seat, event.day)
    return died


def _votes(state: GameState) -> list[VoteRecord]:
    found: list[VoteRecord] = []
    dead: set[int | None] = set()
    sheriff, tied = None, frozenset[int]()
    number = 0
    for kind, group in groupby(state.events, key=lambda event: event.kind):
        events = tuple(group)
        if kind is EventKind.VOTE:
            stand = (tied or frozenset(state.preset.seats)).difference(dead)
            found += _ballot(state, number, events, stand, sheriff)
        for event in events:
            dead.update(event.dead)
            if kind in (EventKind.SHERIFF_ELECTED, EventKind.BADGE_PASSED):
                sheriff = event.target
            elif kind is EventKind.BADGE_TORN:
                sheriff = None
            elif kind is EventKind.VOTE_TIED:
                tied = frozenset(event.seats)
            elif kind is EventKind.REVEALED:
                dead.add(event.target)  # as far as votes go
                tied = frozenset()
            elif kind in (EventKind.EXILED, EventKind.NOBODY_EXILED, EventKind.NIGHT_FALLS, EventKind.SPEAKING_ORDER):
                tied = frozenset()  # that of an election, too, is over by now
        number += len(events)
    return found


def _ballot(
    state: GameState, number: int, votes: Sequence[Event], stand: frozenset[int], sheriff: int | None
) -> list[VoteRecord]:
    """The votes of one ballot. number: of events before it. stand: who could be voted for."""
    public = tuple(event for event in state.events[:number] if event.audience is None)
    halves = {vote.seat: 3 if vote.seat == sheriff else 2 for vote in votes}
    noted = []
    for vote in votes:
        likely = public_wolf_odds(public, vote.seat, state.preset.deck)
        others = [likely[seat] for seat in stand if seat != vote.seat]
        noted.append(
            VoteRecord(
                at=number,
                day=vote.day,
                seat=vote.seat,
                target=vote.target,
                odds=None if vote.target is None else likely[vote.target],
                best=max(others),
                chance=fmean(others),
                pivotal=_leaders(votes, halves) != _leaders([one for one in votes if one is not vote], halves),
            )
        )
    return noted


def _leaders(votes: Sequence[Event], halves: Mapping[int, int]) -> set[int]:
    counts: Counter[int] = Counter()
    for vote in votes:
        if vote.target is not None:
            counts[vote.target] += halves[vote.seat]
    return set(leaders(counts))


def public_wolf_odds(public: Sequence[Event], seat: int, deck: Sequence[Role]) -> dict[int, float]:
    """Seat -> how likely it is a wolf to a villager in ``seat`` who knows the public record alone."""
    memory = TableMemory()
    memory.learn(public, seat, deck)
    return wolf_odds(odds_of(memory, seat, Role.VILLAGER, publicly=True))
