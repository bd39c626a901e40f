"""A whole game as readable Chinese or as JSON data, with every secret or as one seat knew it."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from runners.werewolf.game import Decision, Event, EventKind, GameState, Preset, Result, Role, pending
from runners.werewolf.game.rules import PHASES
from runners.werewolf.prompts_zh.names import RESULT_NAMES, ROLE_NAMES, SIDE_NAMES, seat_name
from runners.werewolf.prompts_zh.record import render_event, render_events

if TYPE_CHECKING:  # a game without a hub starts without agentlightning
    from store.werewolf import Asked

_HEADINGS = {EventKind.NIGHT_FALLS: "夜", EventKind.DAY_BREAKS: "天"}
_TOLD_BY_HEADINGS = (EventKind.GAME_START, EventKind.ROLE_DEALT, EventKind.WOLF_TEAM, EventKind.GAME_OVER)


@dataclass(frozen=True, slots=True)
class Transcript:
    """What is told of a game.

    events: those told, oldest first. viewer: the seat whose view it is; None for the god view (上帝视角).
    result: None for a game cut short.
    """

    preset: Preset
    seed: int
    events: tuple[Event, ...]
    result: Result | None
    viewer: int | None = None

    @classmethod
    def of(cls, state: GameState, viewer: int | None = None) -> "Transcript":
        """The game so far, as ``viewer`` may know it or with everything. ValueError for a seat that does not exist."""
        if viewer is not None and viewer not in state.preset.seats:
            raise ValueError(f"preset {state.preset.name!r} has seats 1 to {len(state.preset.seats)}, not {viewer}")
        events = tuple(event for event in state.events if viewer is None or event.visible_to(viewer))
        return cls(state.preset, state.seed, events, state.result, viewer)

    def as_text(self) -> str:
        """Roles, then every event night by night and day by day, then the result.

        In god view, events that not all seats learned of are marked with those that did.
        """
        view = "上帝视角" if self.viewer is None else f"{seat_name(self.viewer)}视角"
        lines = [f"# {self.preset.name}，种子{self.seed}，{view}", "", "## 身份", *self._roles()]
        # Votes of one ballot stand together, and are told on one line.
        for (kind, _), group in groupby(self.events, key=lambda event: (event.kind, event.audience)):
            events = tuple(group)
            if kind in _HEADINGS:
                lines += ["", f"## 第{events[0].day}{_HEADINGS[kind]}"]
            elif kind not in _TOLD_BY_HEADINGS:
                lines += [line + self._audience(events[0]) for line in render_events(events).splitlines()]
        lines += ["", f"## 结果：{'未结束' if self.result is None else RESULT_NAMES[self.result]}", ""]
        return "\n".join(lines)

    def as_data(self) -> dict[str, Any]:
        """The same for programs, JSON only: the rules, the events with their audiences, the result."""
        rules = asdict(self.preset)
        return {
            "preset": rules.pop("name"),
            "rules": rules,
            "seed": self.seed,
            "viewer": self.viewer,
            "roles": {str(event.seat): event.data["role"] for event in self._deals()},
            "events": [event_data(event) for event in self.events],
            "result": None if self.result is None else self.result.value,
        }

    def _deals(self) -> Iterable[Event]:
        return (event for event in self.events if event.kind is EventKind.ROLE_DEALT)

    def _roles(self) -> Iterable[str]:
        for event in self._deals():
            role = Role(event.data["role"])
            yield f"{seat_name(event.seat)}　{ROLE_NAMES[role]}（{SIDE_NAMES[role.side]}）"
        if self.viewer is not None:
            yield from (render_event(event) for event in self.events if event.kind is EventKind.WOLF_TEAM)

    def _audience(self, event: Event) -> str:
        if event.audience is None or self.viewer is not None:
            return ""
        return f"　（仅{'、'.join(seat_name(seat) for seat in sorted(event.audience))}知道）"


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
