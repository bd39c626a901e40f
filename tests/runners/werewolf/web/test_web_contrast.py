"""Colours of the pages by their numbers: text can be read on what it stands on, by day and by night (WCAG 2.2, AA)."""

import re
from itertools import product
from pathlib import Path

import pytest

STATIC = Path("runners/werewolf/web/static")
CSS = (STATIC / "app.css").read_text(encoding="utf-8")
BLOCKS = {
    "dark": r":root \{\s*color-scheme: dark;(.*?)\}",
    "light": r':root\[data-theme="light"\] \{\s*--(.*?)\}',
    "light by the system's choice": r':root:not\(\[data-theme="dark"\]\) \{\s*--(.*?)\}',
}
TEXT, LARGE = 4.5, 3.0
SURFACES = ("ground", "panel", "raised")
PAIRS = [
    *((ink, ground, TEXT) for ink, ground in product(("ink", "faint"), (*SURFACES, "seat"))),
    *((ink, ground, TEXT) for ink, ground in product(("wolf", "good", "warn", "save", "accent"), ("panel", "ground"))),
    *((role, "seat", TEXT) for role in ("wolf", "god", "villager", "unknown")),
    ("accent-ink", "accent", TEXT),
    # What stands on the table itself: the day's name, and lines that tell who did what to whom.
    *(("ink", felt, TEXT) for felt in ("night-a", "night-b", "day-a", "day-b")),
    *(
        (arrow, felt, LARGE)
        for arrow, felt in product(("wolf", "good", "save", "poison", "warn"), ("night-a", "day-a"))
    ),
]


def colours_of(block):
    (found,) = re.findall(block, CSS, re.DOTALL)
    return {name: value.strip() for name, value in re.findall(r"(?:--)?([\w-]+): ([^;]+);", found)}


def luminance(colour):
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("block", BLOCKS)
def test_every_text_can_be_read_on_its_ground(block):
    colours = colours_of(BLOCKS[block])
    poor = [
        f"{ink} on {ground}: {ratio:.2f}, not {least}"
        for ink, ground, least in PAIRS
        if (ratio := contrast(colours[ink], colours[ground])) < least
    ]
    assert poor == []


def test_light_is_the_same_however_it_was_chosen():
    assert colours_of(BLOCKS["light"]) == colours_of(BLOCKS["light by the system's choice"])
