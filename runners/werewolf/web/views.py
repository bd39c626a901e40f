"""What a page shows of a game, to one viewer: everything that crosses from here to a browser is made by ``shown``.

A viewer is ``god`` (every secret), ``public`` (what the whole table heard) or a seat's number (what that seat may
know). What a viewer may not know is left out here, before anything is sent: numbers of events and turns are counted
over what is shown alone, so that not even a gap tells of what is not.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from runners.werewolf.game import Decision, Event, EventKind
from runners.werewolf.prompts_zh.record import render_event
from runners.werewolf.web.transcripts import NOTE, ShownEvent

GOD, PUBLIC = "god", "public"
Viewer = str | int
ANY_DAY = 0
"""Day of a turn of which it was not kept."""


class UnknownViewer(ValueError):
    """There is no such view of this game."""


@dataclass(frozen=True)
class ShownTurn:
    """One call of a model (``store.werewolf.TurnSpan``). number: within the seat's game; None where it was not kept.

    tokens: (given, sampled), or None where they were not kept. logprob: mean over the sampled tokens.
    """

    seat: int
    day: int
    decision: str
    reply: str
    thought: str = ""
    error: str | None = None
    target: int | None = None
    number: int | None = None
    segment: int | None = None
    is_reask: bool = False
    policy: str = ""
    version: int | None = None
    trainable: bool | None = None
    finish_reason: str = ""
    tokens: tuple[int, int] | None = None
    logprob: float | None = None
    facts: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Asked:
    """A seat that is asked right now. secret: whether others may not know that it is."""

    seat: int
    decision: str
    secret: bool


@dataclass(frozen=True)
class ShownGame:
    """A game as it is known here, with every secret that is known.

    seats: how many. players: seat -> who plays it. about: what else is known of it, by name, for the god view alone.
    only_view: the one seat whose view was kept; None where all was. result: None while it goes on.
    live: whether more is to come. asked: whom it waits for. notice: what cannot be shown, and why, as a code.
    """

    id: str
    title: str
    preset: str
    seats: int
    events: tuple[ShownEvent, ...]
    result: str | None
    seed: int | None = None
    players: Mapping[int, str] = field(default_factory=dict)
    turns: tuple[ShownTurn, ...] = ()
    about: Mapping[str, Any] = field(default_factory=dict)
    only_view: int | None = None
    live: bool = False
    asked: tuple[Asked, ...] = ()
    notice: str = ""


def number_in(text: str) -> int | None:
    """A number from an address; None for anything else, such as one of more digits than any id here has."""
    return int(text) if text.isdecimal() and len(text) < 10 else None


def seats_of(events: Iterable[ShownEvent], roles: Mapping[int, str]) -> int:
    """How many seats a game has: as its start says, else the highest that occurs in it."""
    events = tuple(events)
    for event in events:
        if event.kind == EventKind.GAME_START and number_in(event.data.get("seats", "")):
            return min(int(event.data["seats"]), 24)
    named = [seat for event in events for seat in (event.seat, event.target) if seat is not None]
    listed = [
        int(seat) for event in events for seat in event.data.get("seats", "").split(",") if number_in(seat)
    ]  # orders and deaths
    return min(max([*roles, *named, *listed], default=0), 24)


def viewer_of(text: str, game: ShownGame) -> Viewer:
    """A view by its name in an address. Raises UnknownViewer."""
    if game.only_view is not None:
        if text not in (GOD, PUBLIC, str(game.only_view)):
            raise UnknownViewer(f"only what seat {game.only_view} knew was kept of this game")
        return game.only_view
    if text in (GOD, PUBLIC):
        return text
    seat = number_in(text)
    if seat is not None and 1 <= seat <= game.seats:
        return seat
    raise UnknownViewer(f"no view {text!r}: say {GOD}, {PUBLIC} or a seat from 1 to {game.seats}")


def shown(game: ShownGame, viewer: Viewer, first_event: int = 0, first_turn: int = 0) -> dict[str, Any]:
    """The game as ``viewer`` may know it, JSON only. first_event, first_turn: leave out what the page has already."""
    visible = [event for event in game.events if _may_know(event, viewer)]
    turns = [turn for turn in game.turns if viewer == GOD or turn.seat == viewer]
    places = place_turns(turns, visible)
    roles = {
        str(event.seat): event.data["role"]
        for event in visible
        if event.kind == EventKind.ROLE_DEALT and "role" in event.data
    }
    data: dict[str, Any] = {
        "id": game.id,
        "view": str(viewer),
        "preset": game.preset,
        "seats": game.seats,
        "roles": roles,
        "live": game.live,
        "result": game.result,
        "notice": game.notice,
        "total": len(visible),
        "events": [_event_data(event, viewer) for event in visible[first_event:]],
        "first": first_event,
        "turns": [_turn_data(turn, place) for turn, place in zip(turns[first_turn:], places[first_turn:], strict=True)],
        "firstTurn": first_turn,
        "asked": [
            {"seat": asked.seat, "decision": asked.decision}
            for asked in game.asked
            if viewer == GOD or not asked.secret or asked.seat == viewer
        ],
        "onlyView": game.only_view,
    }
    if viewer == GOD:
        data |= {
            "title": game.title,
            "seed": game.seed,
            "players": {str(seat): name for seat, name in game.players.items()},
            "about": dict(game.about),
        }
    return data


def _may_know(event: ShownEvent, viewer: Viewer) -> bool:
    if viewer == GOD:
        return True
    return event.audience is None if viewer == PUBLIC else event.visible_to(viewer)


def _event_data(event: ShownEvent, viewer: Viewer) -> dict[str, Any]:
    data: dict[str, Any] = {"kind": event.kind, "day": event.day, "secret": event.audience is not None}
    if viewer == GOD and event.audience is not None:
        data["audience"] = sorted(event.audience)
    for name, value in (("seat", event.seat), ("target", event.target), ("text", event.text), ("data", event.data)):
        if value:
            data[name] = value
    line = event.line or ("" if event.text else line_of(event))
    if line:
        data["line"] = line
    return data


def line_of(event: ShownEvent) -> str:
    """The event's line in Chinese, as players are told it; empty for what the referee never wrote."""
    if event.kind == NOTE:
        return event.text
    try:
        return render_event(
            Event(EventKind(event.kind), event.day, None, event.seat, event.target, "", event.data)
        ).removeprefix("【裁判】")
    except (ValueError, KeyError, TypeError):  # from a file that something else wrote
        return ""


def _turn_data(turn: ShownTurn, place: int) -> dict[str, Any]:
    data = {name: value for name, value in vars(turn).items() if value not in (None, "", (), {})}
    return data | {"event": place}


# --- which event a turn made ----------------------------------------------------------------------------------------

_MADE: Mapping[str, tuple[EventKind, ...]] = {
    Decision.WOLF_TALK: (EventKind.WOLF_SAYS,),
    Decision.GUARD: (EventKind.GUARDED,),
    Decision.WOLF_KILL: (EventKind.WOLF_VOTE,),
    Decision.SEER_CHECK: (EventKind.SEER_RESULT,),
    Decision.WITCH: (EventKind.ANTIDOTE_USED, EventKind.POISON_USED),
    Decision.SIGN_UP: (EventKind.SIGNED_UP,),
    Decision.CAMPAIGN_SPEECH: (EventKind.CAMPAIGN_SPEECH,),
    Decision.SHERIFF_VOTE: (EventKind.SHERIFF_VOTE,),
    Decision.SHERIFF_PK_SPEECH: (EventKind.SHERIFF_PK_SPEECH,),
    Decision.SHERIFF_PK_VOTE: (EventKind.SHERIFF_VOTE,),
    Decision.LAST_WORDS: (EventKind.LAST_WORDS,),
    Decision.SHOT: (EventKind.SHOT,),
    Decision.BADGE: (EventKind.BADGE_PASSED, EventKind.BADGE_TORN),
    Decision.SPEAKING_ORDER: (EventKind.SPEAKING_ORDER,),
    Decision.SPEECH: (EventKind.SPEECH,),
    Decision.CLOSING_SPEECH: (EventKind.CLOSING_SPEECH,),
    Decision.EXILE_VOTE: (EventKind.VOTE,),
    Decision.PK_SPEECH: (EventKind.PK_SPEECH,),
    Decision.PK_VOTE: (EventKind.VOTE,),
}


def place_turns(turns: Sequence[ShownTurn], events: Sequence[ShownEvent]) -> list[int]:
    """For each turn the number of the event that came of it, or, for a decision that shows in no event, near it.

    A reply that could not be used stands with the one that was asked for in its stead.
    """
    after: dict[int, int] = {}  # seat -> the first event that its next turn may have made
    places: list[int] = []
    for turn in turns:
        start = after.get(turn.seat, 0)
        found = next((number for number in range(start, len(events)) if _made(turn, events[number])), None)
        if found is None:
            found = _end_of_day_part(events, start, turn)
        elif turn.error is None:
            after[turn.seat] = found + 1
        places.append(found)
    return places


def _made(turn: ShownTurn, event: ShownEvent) -> bool:
    if turn.day not in (event.day, ANY_DAY):
        return False
    if event.kind == EventKind.SIGNED_UP:
        return turn.decision == Decision.SIGN_UP
    return event.seat == turn.seat and (event.kind in _MADE.get(turn.decision, ()) or event.kind == EventKind.EXPLODED)


def _end_of_day_part(events: Sequence[ShownEvent], start: int, turn: ShownTurn) -> int:
    """The last event of the night or day that the turn belongs to; the last of all where it goes on."""
    by_night = turn.decision == Decision.WITCH
    last = max(len(events) - 1, 0)
    for number in range(start, len(events)):
        event = events[number]
        ends_night = by_night and event.kind == EventKind.DAY_BREAKS and event.day == turn.day
        if ends_night or event.day > turn.day != ANY_DAY:
            return max(number - 1, 0)
    return last
