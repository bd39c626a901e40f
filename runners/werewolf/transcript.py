"""A whole game as readable Chinese, with everything that was secret while it was played."""

from collections.abc import Iterable

from runners.werewolf.game import Event, EventKind, Preset, Result, Role
from runners.werewolf.prompts_zh import RESULT_NAMES, ROLE_NAMES, SIDE_NAMES, render_event, seat_name


def render_transcript(preset: Preset, seed: int, events: Iterable[Event], result: Result | None) -> str:
    """The game in god view: roles, then every event night by night and day by day, then the result.

    Events that not all seats learned of are marked with those that did. result: None for a game cut short.
    """
    events = tuple(events)
    lines = [f"# {preset.name}，种子{seed}", "", "## 身份"]
    for event in events:
        if event.kind is EventKind.ROLE_DEALT:
            role = Role(event.data["role"])
            lines.append(f"{seat_name(event.seat)}　{ROLE_NAMES[role]}（{SIDE_NAMES[role.side]}）")
    for event in events:
        if event.kind is EventKind.NIGHT_FALLS:
            lines += ["", f"## 第{event.day}夜"]
        elif event.kind is EventKind.DAY_BREAKS:
            lines += ["", f"## 第{event.day}天"]
        elif event.kind not in (EventKind.GAME_START, EventKind.ROLE_DEALT, EventKind.WOLF_TEAM, EventKind.GAME_OVER):
            lines.append(render_event(event) + _audience(event))
    lines += ["", f"## 结果：{'未结束' if result is None else RESULT_NAMES[result]}", ""]
    return "\n".join(lines)


def _audience(event: Event) -> str:
    if event.audience is None:
        return ""
    return f"　（仅{'、'.join(seat_name(seat) for seat in sorted(event.audience))}知道）"
