"""A game as Chinese text or as JSON data, in full or from the view of one seat."""

from collections.abc import Mapping
from dataclasses import asdict
from itertools import groupby
from typing import Any

from runners.werewolf.game import Decision, Event, EventKind, GameState, Role, pending
from runners.werewolf.game.rules import PHASES
from runners.werewolf.prompts_zh.names import RESULT_NAMES, ROLE_NAMES, SIDE_NAMES, seat_name
from runners.werewolf.prompts_zh.record import render_event, render_events
from store.werewolf import Asked

_HEADINGS = {EventKind.NIGHT_FALLS: "夜", EventKind.DAY_BREAKS: "天"}
_TOLD_BY_HEADINGS = (EventKind.GAME_START, EventKind.ROLE_DEALT, EventKind.WOLF_TEAM, EventKind.GAME_OVER)


def game_text(state: GameState, viewer: int | None = None) -> str:
    """Roles, events by night and day, and the result, in a seat's view.

    viewer: None for the god view (上帝视角), which marks events that are not public with their audience.
    """
    view = "上帝视角" if viewer is None else f"{seat_name(viewer)}视角"
    lines = [f"# {state.preset.name}，种子{state.seed}，{view}", "", "## 身份"]
    known = _known(state, viewer)
    for event in known:
        if event.kind is EventKind.ROLE_DEALT:
            role = Role(event.data["role"])
            lines.append(f"{seat_name(event.seat)}　{ROLE_NAMES[role]}（{SIDE_NAMES[role.side]}）")
        elif event.kind is EventKind.WOLF_TEAM and viewer is not None:
            lines.append(render_event(event))
    # Votes of one ballot are consecutive, and share a line.
    for (kind, audience), group in groupby(known, key=lambda event: (event.kind, event.audience)):
        events = tuple(group)
        if kind in _HEADINGS:
            lines += ["", f"## 第{events[0].day}{_HEADINGS[kind]}"]
        elif kind not in _TOLD_BY_HEADINGS:
            secret = audience is not None and viewer is None
            known_to = f"　（仅{'、'.join(map(seat_name, sorted(audience)))}知道）" if secret else ""
            lines += [line + known_to for line in render_events(events).splitlines()]
    return "\n".join([*lines, "", f"## 结果：{RESULT_NAMES.get(state.result, '未结束')}", ""])


def game_data(state: GameState, viewer: int | None = None) -> dict[str, Any]:
    """The game as JSON data: rules, events with audiences, result."""
    rules, known = asdict(state.preset), _known(state, viewer)
    return {
        "preset": rules.pop("name"),
        "rules": rules,
        "seed": state.seed,
        "viewer": viewer,
        "roles": {str(event.seat): event.data["role"] for event in known if event.kind is EventKind.ROLE_DEALT},
        "events": [event_data(event) for event in known],
        "result": None if state.result is None else state.result.value,
    }


def _known(state: GameState, viewer: int | None) -> list[Event]:
    return [event for event in state.events if viewer is None or event.visible_to(viewer)]


def asked_in(state: GameState) -> list[Asked]:
    """The pending requests, with whether they are secret."""
    rule = PHASES[state.phase]
    # Only wolves are asked about an explosion, so it is secret also while all others vote.
    return [
        (
            request.seat,
            request.decision.value,
            rule.by_night or rule.hidden or request.decision is Decision.EXPLOSION,
        )
        for request in pending(state)
    ]


def event_data(event: Event) -> dict[str, Any]:
    """An event as JSON data, without empty fields; public without an audience."""
    fields = {
        "kind": event.kind.value,
        "day": event.day,
        "audience": None if event.audience is None else sorted(event.audience),
        "seat": event.seat,
        "target": event.target,
        "text": event.text,
        "data": dict(event.data),
    }
    return {name: value for name, value in fields.items() if value not in (None, "", {})}


def event_of(data: Mapping[str, Any]) -> Event:
    """The event from ``event_data``. Raises LookupError, TypeError or ValueError for other data."""
    audience = None if data.get("audience") is None else frozenset(data["audience"])
    fields = data.get("seat"), data.get("target"), data.get("text", ""), data.get("data", {})
    return Event(EventKind(data["kind"]), data["day"], audience, *fields)
