"""What a page shows of a game, to one viewer: everything that crosses from here to a browser is made by ``shown``.

A viewer is ``god`` (every secret), ``public`` (what the whole table heard) or a seat's number (what that seat may
know). What a viewer may not know is left out here, before anything is sent: numbers of events and turns are counted
over what is shown alone, so that not even a gap tells of what is not.

Events are those of ``transcript.event_data``: JSON objects, as spans, files and evaluations carry them.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from runners.werewolf.game import Decision, Event, EventKind, Result
from runners.werewolf.prompts_zh.names import REFEREE
from runners.werewolf.prompts_zh.record import render_event
from store.werewolf import Asked, TurnSpan

GOD, PUBLIC = "god", "public"
Viewer = str | int
GameEvent = Mapping[str, Any]
_MOST_SEATS = 24


class UnknownViewer(ValueError):
    """There is no such view of this game."""


class UnreadableGame(ValueError):
    """What was given is no game; the message says why."""


@dataclass(frozen=True)
class ShownTurn:
    """One call of a model (``store.werewolf.TurnSpan``). number: within the seat's game; None where it was not kept.

    day: None where it was not kept. first_event: number of the event from which on the turn's own comes.
    tokens: (given, sampled), or None where they were not kept. logprob: mean over the sampled tokens.
    """

    seat: int
    day: int | None
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
    first_event: int = 0


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
    events: tuple[GameEvent, ...]
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


def read_game(game_id: str, title: str, data: Any, **fields: Any) -> ShownGame:
    """A game as ``play --format json`` writes one, of whoever wrote it. Raises UnreadableGame."""
    if not isinstance(data, dict) or not isinstance(data.get("events"), list | tuple):
        raise UnreadableGame("no game: expected what `play --format json` writes, an object with `preset` and `events`")
    events = tuple(_checked(number, event) for number, event in enumerate(data["events"]))
    players = data.get("players") or {}
    seed, viewer, result = data.get("seed"), data.get("viewer"), data.get("result")
    known: dict[str, Any] = {
        "seats": seats_of(events),
        "seed": seed if isinstance(seed, int) else None,
        "result": result if result in list(Result) else None,
        "players": {int(seat): str(name) for seat, name in players.items() if number_in(str(seat))},
        "only_view": viewer if isinstance(viewer, int) else None,
    }
    return ShownGame(game_id, title, str(data.get("preset", "")), events=events, **(known | fields))


def _checked(number: int, event: Any) -> GameEvent:
    """The event, if a page can show it. Raises UnreadableGame."""
    if not isinstance(event, dict):
        raise UnreadableGame(f"event {number}: not an object")
    kind, day, text, facts = event.get("kind"), event.get("day"), event.get("text") or "", event.get("data") or {}
    if not isinstance(kind, str) or type(day) is not int or not isinstance(text, str):
        raise UnreadableGame(f"event {number}: kind and text must be text, day a number")
    if not isinstance(facts, dict) or not all(isinstance(value, str) for value in facts.values()):
        raise UnreadableGame(f"event {number}: data must hold texts by name")
    for name in ("seat", "target"):
        if (seat := event.get(name)) is not None and (type(seat) is not int or not 1 <= seat <= 99):
            raise UnreadableGame(f"event {number}: {name} must be a seat's number or null")
    audience = event.get("audience")
    if audience is not None and not (isinstance(audience, list) and all(type(seat) is int for seat in audience)):
        raise UnreadableGame(f"event {number}: audience must be a list of seats or null")
    names = ("kind", "day", "audience", "seat", "target", "text", "data")
    return {name: event[name] for name in names if event.get(name) not in (None, "", {})}


def seats_of(events: Iterable[GameEvent]) -> int:
    """How many seats a game has: as its start says, else the highest that occurs in it."""
    highest = 0
    for event in events:
        told = number_in(event.get("data", {}).get("seats", ""))
        if event["kind"] == EventKind.GAME_START and told:
            return min(told, _MOST_SEATS)
        named = [event.get("seat") or 0, event.get("target") or 0]
        listed = (number_in(seat) or 0 for seat in event.get("data", {}).get("seats", "").split(","))
        highest = max(highest, *named, *listed)
    return min(highest, _MOST_SEATS)


def turn_of(span: TurnSpan, first_event: int) -> ShownTurn:
    """A stored turn as pages show it. first_event: see ``ShownTurn``."""
    return ShownTurn(
        seat=span.seat,
        day=span.day,
        decision=span.decision,
        reply=span.reply,
        thought=span.thought,
        error=span.error,
        target=span.target,
        number=span.turn,
        segment=span.segment,
        is_reask=span.is_reask,
        policy=span.policy,
        version=span.policy_version,
        trainable=span.trainable,
        finish_reason=span.finish_reason,
        tokens=(len(span.prompt_ids), len(span.response_ids)),
        # All zeros are a demonstration's: no policy sampled it.
        logprob=round(fmean(span.logprobs), 4) if any(span.logprobs) else None,
        facts={name: value for name, value in span.facts.items() if value},
        first_event=first_event,
    )


def viewer_of(text: str, game: ShownGame) -> Viewer:
    """A view by its name in an address. Raises UnknownViewer."""
    seat = number_in(text)
    if game.only_view is not None:
        if text not in (GOD, PUBLIC) and seat != game.only_view:
            raise UnknownViewer(f"only what seat {game.only_view} knew was kept of this game")
        return game.only_view
    if text in (GOD, PUBLIC):
        return text
    if seat is not None and 1 <= seat <= game.seats:
        return seat
    raise UnknownViewer(f"no view {text!r}: say {GOD}, {PUBLIC} or a seat from 1 to {game.seats}")


def may_know(event: GameEvent, viewer: Viewer) -> bool:
    """Whether a viewer may know of an event."""
    audience = event.get("audience")
    return viewer == GOD or audience is None or viewer in audience


def shown(game: ShownGame, viewer: Viewer, first_event: int = 0, first_turn: int = 0) -> dict[str, Any]:
    """The game as ``viewer`` may know it, JSON only. first_event, first_turn: leave out what the page has already."""
    numbers = [number for number, event in enumerate(game.events) if may_know(event, viewer)]
    visible = [game.events[number] for number in numbers]
    turns = [turn for turn in game.turns if viewer == GOD or turn.seat == viewer]
    places = place_turns(turns, visible, numbers)
    dealt = [event for event in visible if event["kind"] == EventKind.ROLE_DEALT and "role" in event.get("data", {})]
    data: dict[str, Any] = {
        "id": game.id,
        "view": str(viewer),
        "preset": game.preset,
        "seats": game.seats,
        "roles": {str(event.get("seat")): event["data"]["role"] for event in dealt},
        "live": game.live,
        "result": game.result,
        "notice": game.notice,
        "total": len(visible),
        "events": [_event_data(event, viewer) for event in visible[first_event:]],
        "first": first_event,
        "turns": [_turn_data(turn, place) for turn, place in zip(turns[first_turn:], places[first_turn:], strict=True)],
        "firstTurn": first_turn,
        "asked": [
            {"seat": seat, "decision": decision}
            for seat, decision, secret in game.asked
            if viewer == GOD or not secret or seat == viewer
        ],
        "onlyView": game.only_view,
    }
    if viewer == GOD:
        players = {str(seat): name for seat, name in game.players.items()}
        data |= {"title": game.title, "seed": game.seed, "players": players, "about": dict(game.about)}
    return data


def _event_data(event: GameEvent, viewer: Viewer) -> dict[str, Any]:
    data = {name: value for name, value in event.items() if name != "audience" or viewer == GOD}
    line = "" if event.get("text") else _line_of(event)
    return data | {"secret": "audience" in event} | ({"line": line} if line else {})


def _line_of(event: GameEvent) -> str:
    """The event's line in Chinese, as players hear it; empty for what the referee never wrote."""
    try:
        fields = (event.get(name) for name in ("seat", "target"))
        told = Event(EventKind(event["kind"]), event["day"], None, *fields, "", event.get("data", {}))
        return render_event(told).removeprefix(REFEREE)
    except (ValueError, KeyError, TypeError):  # from a file that something else wrote
        return ""


def _turn_data(turn: ShownTurn, place: int) -> dict[str, Any]:
    data = {name: value for name, value in vars(turn).items() if value not in (None, "", (), {})}
    return data | {"event": place}


_MADE: Mapping[str, tuple[EventKind, ...]] = {
    Decision.WOLF_TALK: (EventKind.WOLF_SAYS,),
    Decision.GUARD: (EventKind.GUARDED,),
    Decision.WOLF_KILL: (EventKind.WOLF_VOTE,),
    Decision.SEER_CHECK: (EventKind.SEER_RESULT,),
    Decision.WITCH: (EventKind.ANTIDOTE_USED, EventKind.POISON_USED),
    Decision.BADGE: (EventKind.BADGE_PASSED, EventKind.BADGE_TORN),
    Decision.SHERIFF_PK_VOTE: (EventKind.SHERIFF_VOTE,),
    Decision.EXILE_VOTE: (EventKind.VOTE,),
    Decision.PK_VOTE: (EventKind.VOTE,),
}
"""Kinds of the events that a decision makes; those of the others are named as it is."""


def place_turns(turns: Sequence[ShownTurn], events: Sequence[GameEvent], numbers: Sequence[int] = ()) -> list[int]:
    """For each turn the place of the event that came of it; for a decision that shows in no event, one near it.

    numbers: those of the events in the whole game; by default their places. A reply that could not be used stands
    with the one that followed it.
    """
    numbers = numbers or range(len(events))
    after: dict[int, int] = {}  # seat -> the first event that its next turn may have made
    places: list[int] = []
    for turn in turns:
        start = max(after.get(turn.seat, 0), bisect_left(numbers, turn.first_event))
        found = next((place for place in range(start, len(events)) if _made(turn, events[place])), None)
        if found is None:
            found = min(start, max(len(events) - 1, 0))
        elif turn.error is None:
            after[turn.seat] = found + 1
        places.append(found)
    return places


def _made(turn: ShownTurn, event: GameEvent) -> bool:
    if turn.day not in (event["day"], None):
        return False
    if event["kind"] == EventKind.SIGNED_UP:
        return turn.decision == Decision.SIGN_UP
    kinds = (*_MADE.get(turn.decision, (turn.decision,)), EventKind.EXPLODED)
    return event.get("seat") == turn.seat and event["kind"] in kinds
