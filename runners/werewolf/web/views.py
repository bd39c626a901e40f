"""What a page shows of a game, to one viewer: everything that crosses from here to a browser is made by ``shown``.

A viewer is ``god`` (every secret), ``public`` (what the whole table heard) or a seat's number (what that seat may
know). What a viewer may not know is left out here, before anything is sent: numbers of events and turns are counted
over what is shown alone, so that not even a gap tells of what is not.
"""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Annotated, Any, Required

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from typing_extensions import TypedDict

from runners.werewolf.game import Event, EventKind, Result, Role
from runners.werewolf.prompts_zh.names import REFEREE
from runners.werewolf.prompts_zh.record import render_event
from store.werewolf import Asked

GOD, PUBLIC = "god", "public"
Viewer = str | int
_MOST_SEATS = 24
_EMPTY = (None, "", {})
_SIDES = {role.value: role.side.value for role in Role}


class UnknownViewer(ValueError):
    """There is no such view of this game."""


class UnreadableGame(ValueError):
    """What was given is no game; the message says why."""


Seat = Annotated[int, Field(ge=1, le=99, strict=True)]


class GameEvent(TypedDict, total=False):
    """An event as ``transcript.event_data`` writes it; one without an audience was known to all."""

    kind: Required[str]
    day: Required[Annotated[int, Field(strict=True)]]
    audience: list[Seat] | None
    seat: Seat | None
    target: Seat | None
    text: str
    data: dict[str, str]


class ShownTurn(TypedDict, total=False):
    """A model's turn as ``TurnSpan.as_data`` writes it."""

    seat: Required[Seat]
    decision: Required[str]
    day: int
    turn: int
    segment: int
    is_reask: bool
    policy: str
    policy_version: int
    thought: str
    reply: str
    error: str | None
    target: int | None
    events_before: int
    facts: dict[str, float]
    tokens: tuple[int, int] | None
    logprob: float | None


class ShownGame(BaseModel):
    """A game with every secret that is known of it."""

    model_config = ConfigDict(frozen=True)

    id: str = ""
    title: str = ""
    preset: str = ""
    events: list[GameEvent]
    result: Result | None = None  # None while it goes on
    seed: int | None = None
    players: dict[int, str] = {}  # seat -> who plays it
    turns: list[ShownTurn] = []
    about: dict[str, Any] = {}  # what else is known of it, by name, for the god view alone
    viewer: int | None = None  # the one seat whose view was kept; None where all was
    live: bool = False  # whether more is to come
    asked: list[Asked] = []  # whom it waits for
    notice: str = ""  # what cannot be shown, and why, as a code

    @property
    def seats(self) -> int:
        """How many: as the game's start says, else the highest that occurs."""
        start = next((event for event in self.events if event["kind"] == EventKind.GAME_START), {})
        said = number_in(start.get("data", {}).get("seats", ""))
        named = (event.get(name) or 0 for event in self.events for name in ("seat", "target"))
        return min(said or max(named, default=0), _MOST_SEATS)


def number_in(text: str) -> int | None:
    """A number from an address; None for anything else, such as one of more digits than any id here has."""
    return int(text) if text.isdecimal() and len(text) < 10 else None


def read_game(data: Any, **fields: Any) -> ShownGame:
    """A game as ``play --format json`` writes one, of whoever wrote it. fields: known beside. Raises UnreadableGame."""
    if not isinstance(data, dict):
        raise UnreadableGame("no game: expected what `play --format json` writes, an object with `events`")
    written = ("preset", "events", "result", "seed", "players", "turns", "viewer")
    known = {name: data[name] for name in written if data.get(name) is not None}
    try:
        return ShownGame.model_validate(known | fields)
    except ValidationError as error:
        wrong = error.errors()[0]
        raise UnreadableGame(f"no game: {'.'.join(map(str, wrong['loc']))}: {wrong['msg']}") from error


def card_of(game: ShownGame) -> dict[str, Any]:
    """What a list says of a whole game: days is the last one, players: side -> who played it."""
    dealt = (event for event in game.events if event["kind"] == EventKind.ROLE_DEALT)
    sides = {event.get("seat"): _SIDES.get(event.get("data", {}).get("role", "")) for event in dealt}
    players: dict[str, dict[str, None]] = {}
    for seat, name in game.players.items():
        players.setdefault(sides.get(seat) or "unknown", {})[name] = None
    return {
        "id": game.id,
        "preset": game.preset,
        "days": game.events[-1]["day"] if game.events else None,
        "result": game.result,
        "players": {side: list(names) for side, names in players.items()},
    }


def viewer_of(text: str, game: ShownGame) -> Viewer:
    """A view by its name in an address. Raises UnknownViewer."""
    seat = number_in(text)
    if game.viewer is not None:
        if text not in (GOD, PUBLIC) and seat != game.viewer:
            raise UnknownViewer(f"only what seat {game.viewer} knew was kept of this game")
        return game.viewer
    if text in (GOD, PUBLIC):
        return text
    if seat is not None and 1 <= seat <= game.seats:
        return seat
    raise UnknownViewer(f"no view {text!r}: say {GOD}, {PUBLIC} or a seat from 1 to {game.seats}")


def shown(game: ShownGame, viewer: Viewer, first_event: int = 0, first_turn: int = 0) -> dict[str, Any]:
    """The game as ``viewer`` may know it, JSON only. first_event, first_turn: leave out what the page has already."""
    known = [
        (number, event)
        for number, event in enumerate(game.events)
        if viewer == GOD or event.get("audience") is None or viewer in event["audience"]
    ]
    turns = [turn for turn in game.turns if viewer == GOD or turn["seat"] == viewer]
    dealt = [event for _, event in known if event["kind"] == EventKind.ROLE_DEALT and "role" in event.get("data", {})]
    data: dict[str, Any] = {
        "id": game.id,
        "view": str(viewer),
        "preset": game.preset,
        "seats": game.seats,
        "roles": {str(event.get("seat")): event["data"]["role"] for event in dealt},
        "live": game.live,
        "result": game.result,
        "notice": game.notice,
        "total": len(known),
        "events": [_event_data(event, viewer) for _, event in known[first_event:]],
        "first": first_event,
        "turns": _turns_data(turns, known)[first_turn:],
        "firstTurn": first_turn,
        "asked": [
            {"seat": seat, "decision": decision}
            for seat, decision, secret in game.asked
            if viewer == GOD or not secret or seat == viewer
        ],
        "onlyView": game.viewer,
    }
    if viewer == GOD:
        data |= {"title": game.title, "seed": game.seed, "players": game.players, "about": game.about}
    return data


def _event_data(event: GameEvent, viewer: Viewer) -> dict[str, Any]:
    data = {name: value for name, value in event.items() if value not in _EMPTY}
    secret = data.get("audience") is not None
    if viewer != GOD:
        data.pop("audience", None)
    line = "" if event.get("text") else _line_of(event)
    return data | {"secret": secret} | ({"line": line} if line else {})


def _line_of(event: GameEvent) -> str:
    """The event's line in Chinese, as players hear it; empty for what the referee never wrote."""
    try:
        fields = (event.get(name) for name in ("seat", "target"))
        told = Event(EventKind(event["kind"]), event["day"], None, *fields, "", event.get("data", {}))
        return render_event(told).removeprefix(REFEREE)
    except (ValueError, KeyError, TypeError):  # from a file that something else wrote
        return ""


def _turns_data(turns: Sequence[ShownTurn], known: Sequence[tuple[int, GameEvent]]) -> list[dict[str, Any]]:
    """Each turn with the place, among the events that are shown, of the one that came of it.

    That is the seat's first event between this question and its next one, or where there is none, the first after it.
    """
    numbers = [number for number, _ in known]
    rounds: dict[int, tuple[int, int]] = {}  # seat -> where in ``known`` its next question's events begin, and end
    found = []
    for turn in reversed(turns):
        seat, start = turn["seat"], bisect_left(numbers, turn.get("events_before", 0))
        begin, end = rounds.get(seat, (len(known), len(known)))
        end = end if start == begin else begin  # a repeated question has the events of the one before
        rounds[seat] = start, end
        own = (place for place in range(start, end) if known[place][1].get("seat") == seat)
        place = next(own, max(min(start, len(known) - 1), 0))
        told = {name: value for name, value in turn.items() if value not in _EMPTY and name != "events_before"}
        found.append(told | {"event": place})
    return found[::-1]
