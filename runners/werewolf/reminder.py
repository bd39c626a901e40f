"""The text after each question to a seat: what a model with a short memory would forget."""

from collections.abc import Mapping, Sequence

from runners.werewolf.game import SPEECHES, Event, EventKind, Role
from runners.werewolf.language.speech import understand
from runners.werewolf.prompts_zh.names import CHECK_NAMES, seat_name, seat_names
from runners.werewolf.prompts_zh.quoting import fill, placeholders
from runners.werewolf.prompts_zh.record import render_private
from runners.werewolf.prompts_zh.system import seated


def reminder(seat: int, role: Role, templates: Mapping[str, str], known: Sequence[Event]) -> str:
    """The text after each question to a seat; empty without a template.

    templates: as in ``system_prompt``; ``check_templates`` has passed. known: the seat's events so far.
    """
    template = templates.get("reminder", "")
    reports = _reports(known, seat) if "reports" in placeholders(template) else ""
    return fill(template, **seated(seat, role), private=render_private(known), reports=reports)


def _reports(known: Sequence[Event], seat: int) -> str:
    """Who reported which check in public, oldest first, and the other living seats: neither reporting nor reported.

    Empty without a report. known: the seat's events. Only reports of seats that have claimed to be the seer, as
    scripted players count them; of one seat's reports about another the last. They are not verified: a wolf may pose
    as the seer.
    """
    living: set[int] = set()
    claimed: set[int | None] = set()
    reports: dict[tuple[int | None, int], str] = {}
    for event in known:
        if event.kind is EventKind.GAME_START:
            living.update(range(1, int(event.data["seats"]) + 1))
        living.difference_update(event.dead)
        if event.kind in SPEECHES:
            heard = understand(event.text)
            claimed |= {event.seat} if heard.claimed is Role.SEER else set()
            for checked, side in heard.reports if event.seat in claimed else ():
                if checked != event.seat:
                    shown = f"{seat_name(event.seat)}报{seat_name(checked)}是{CHECK_NAMES[side]}"
                    reports[event.seat, checked] = shown
    if not reports:
        return ""
    rest = sorted(living.difference(*reports, [seat]))
    return f"公开的查验：{'，'.join(reports.values())}。{f'其余：{seat_names(rest)}。' if rest else ''}"
