"""A whole game as readable Chinese or as JSON data, with every secret or as one seat knew it."""

from collections.abc import Mapping
from dataclasses import asdict
from itertools import groupby
from typing import TYPE_CHECKING, Any

from runners.werewolf.game import Decision, Event, EventKind, GameState, Role, pending
from runners.werewolf.game.rules import PHASES
from runners.werewolf.prompts_zh.names import RESULT_NAMES, ROLE_NAMES, SIDE_NAMES, seat_name
from runners.werewolf.prompts_zh.record import render_event, render_events

if TYPE_CHECKING:  # a game without a hub starts without agentlightning
    from store.werewolf import Asked

_HEADINGS = {EventKind.NIGHT_FALLS: "夜", EventKind.DAY_BREAKS: "天"}
_TOLD_BY_HEADINGS = (EventKind.GAME_START, EventKind.ROLE_DEALT, EventKind.WOLF_TEAM, EventKind.GAME_OVER)


def game_text(state: GameState, viewer: int | None = None) -> str:
    """Roles, then every event night by night and day by day, then the result, as a seat knew them.

    viewer: None for the god view (上帝视角), in which events that not all seats learned of are marked with who did.
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
    # Votes of one ballot stand together, and are told on one line.
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
    """The same for programs, JSON only: the rules, the events with their audiences, the result."""
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


def asked_in(state: GameState) -> "list[Asked]":
    """Whom the game asks, with whether that is a secret."""
    rule = PHASES[state.phase]
    # Who is asked about an explosion on its own is a wolf, also in a round in which all others vote.
    return [
        (
            request.seat,
            request.decision.value,
            rule.by_night or rule.hidden or request.decision is Decision.EXPLOSION,
        )
        for request in pending(state)
    ]


def event_data(event: Event) -> dict[str, Any]:
    """An event as JSON data, without the fields that are empty; without an audience everybody learned of it."""
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
    """The event that ``event_data`` wrote. Raises LookupError, TypeError or ValueError for anything else."""
    audience = None if data.get("audience") is None else frozenset(data["audience"])
    fields = data.get("seat"), data.get("target"), data.get("text", ""), data.get("data", {})
    return Event(EventKind(data["kind"]), data["day"], audience, *fields)
