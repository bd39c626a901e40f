"""A viewer's view of a game; ``shown`` makes all game data that browsers receive.

A viewer is ``god`` (every secret), ``public`` (public events) or a seat's number. Hidden events and turns are removed
on the server, and numbers count visible ones only, so that gaps reveal nothing.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
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
    """An invalid view of the game."""


class UnreadableGame(ValueError):
    """The data is not a game; the message says why."""


Seat = Annotated[int, Field(ge=1, le=99, strict=True)]


class GameEvent(TypedDict, total=False):
    """An event of ``transcript.event_data``; public without an audience."""

    kind: Required[str]
    day: Required[Annotated[int, Field(strict=True)]]
    audience: list[Seat] | None
    seat: Seat | None
    target: Seat | None
    text: str
    data: dict[str, str]


class ShownWorth(TypedDict):
    """What a decision changed (``algo.advantages.branching.Worth``), for the god view only."""

    before: Annotated[float, Field(allow_inf_nan=False)]
    after: Annotated[float, Field(allow_inf_nan=False)]
    games: Annotated[int, Field(ge=2)]


class ShownTurn(TypedDict, total=False):
    """A model turn of ``TurnSpan.as_data``."""

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
    worth: ShownWorth


class ShownGame(BaseModel):
    """A game with all its secrets."""

    model_config = ConfigDict(frozen=True)

    id: str = ""
    title: str = ""
    preset: str = ""
    events: list[GameEvent]
    result: Result | None = None  # None while it is running
    seed: int | None = None
    players: dict[int, str] = {}  # seat -> player
    turns: list[ShownTurn] = []
    about: dict[str, Any] = {}  # further data, for the god view only
    attempt: str = ""  # id of a hub's attempt; empty before its first turn
    viewer: int | None = None  # the seat of the stored view; None for a full game
    live: bool = False  # whether it is running
    asked: list[Asked] = []  # pending requests
    notice: str = ""  # code of a notice

    @property
    def seats(self) -> int:
        """Number of seats, from the game's start, else the highest seat in events."""
        start = next((event for event in self.events if event["kind"] == EventKind.GAME_START), {})
        said = number_in(start.get("data", {}).get("seats", ""))
        named = (event.get(name) or 0 for event in self.events for name in ("seat", "target"))
        return min(said or max(named, default=0), _MOST_SEATS)


def number_in(text: str) -> int | None:
    """A number from a URL; None if it is invalid or has 10 or more digits."""
    return int(text) if text.isdecimal() and len(text) < 10 else None


def read_game(data: Any, **fields: Any) -> ShownGame:
    """A game in the format of ``play --format json``. fields: further data. Raises UnreadableGame."""
    if not isinstance(data, dict):
        raise UnreadableGame("not a game: expected an object with `events`, as written by `play --format json`")
    written = ("preset", "events", "result", "seed", "players", "turns", "viewer")
    known = {name: data[name] for name in written if data.get(name) is not None}
    try:
        return ShownGame.model_validate(known | fields)
    except ValidationError as error:
        wrong = error.errors()[0]
        raise UnreadableGame(f"not a game: {'.'.join(map(str, wrong['loc']))}: {wrong['msg']}") from error


def card_of(game: ShownGame) -> dict[str, Any]:
    """A finished game's row in lists. days: the last day. players: side -> names."""
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
    """A view by its name in a URL. Raises UnknownViewer."""
    seat = number_in(text)
    if game.viewer is not None:
        if text not in (GOD, PUBLIC) and seat != game.viewer:
            raise UnknownViewer(f"only the view of seat {game.viewer} was stored of this game")
        return game.viewer
    if text in (GOD, PUBLIC):
        return text
    if seat is not None and 1 <= seat <= game.seats:
        return seat
    raise UnknownViewer(f"unknown view {text!r}: use {GOD}, {PUBLIC} or a seat from 1 to {game.seats}")


_OF_CARDS = frozenset({"vote_against_enemy", "attack_on_enemy"})
"""Facts that depend on the card of the seat that a turn names."""


def _without_cards(turn: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in turn.items() if name != "worth"}
    if facts := kept.get("facts"):
        kept["facts"] = {name: value for name, value in facts.items() if name not in _OF_CARDS}
    return kept


def shown(game: ShownGame, viewer: Viewer, first_event: int = 0, first_turn: int = 0) -> dict[str, Any]:
    """The game in the view of ``viewer``, as JSON data. first_event, first_turn: skip what the page has already."""
    known = [
        (number, event)
        for number, event in enumerate(game.events)
        if viewer == GOD or event.get("audience") is None or viewer in event["audience"]
    ]
    turns = [
        turn if viewer == GOD else _without_cards(turn)
        for turn in game.turns
        if viewer == GOD or turn["seat"] == viewer
    ]
    dealt = [event for _, event in known if event["kind"] == EventKind.ROLE_DEALT and "role" in event.get("data", {})]
    data: dict[str, Any] = {
        "id": game.id,
        "view": str(viewer),
        "preset": game.preset,
        "seats": game.seats,
        "roles": {str(event.get("seat")): event["data"]["role"] for event in dealt},
        "attempt": game.attempt,
        "live": game.live,
        "result": game.result,
        "notice": game.notice,
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
    """The event's line in Chinese, as players hear it; empty for an unknown event."""
    try:
        fields = (event.get(name) for name in ("seat", "target"))
        parsed = Event(EventKind(event["kind"]), event["day"], None, *fields, "", event.get("data", {}))
        return render_event(parsed).removeprefix(REFEREE)
    except (ValueError, KeyError, TypeError):  # from a file of other origin
        return ""


def _turns_data(turns: Sequence[ShownTurn], known: Sequence[tuple[int, GameEvent]]) -> list[dict[str, Any]]:
    """Each turn with the index of its event among the shown events.

    That is the seat's first event between this question and its next one, else the first event after the question.
    """
    numbers = [number for number, _ in known]
    rounds: dict[int, tuple[int, int]] = {}  # seat -> range in ``known`` of its next question's events
    found = []
    for turn in reversed(turns):
        seat, start = turn["seat"], bisect_left(numbers, turn.get("events_before", 0))
        begin, end = rounds.get(seat, (len(known), len(known)))
        end = end if start == begin else begin  # a re-ask has the events of the first question
        rounds[seat] = start, end
        own = (place for place in range(start, end) if known[place][1].get("seat") == seat)
        place = next(own, max(min(start, len(known) - 1), 0))
        fields = {name: value for name, value in turn.items() if value not in _EMPTY and name != "events_before"}
        found.append(fields | {"event": place})
    return found[::-1]
