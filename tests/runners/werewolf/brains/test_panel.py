"""Holds the players without a model to the games that they played when ``panel.txt`` was written.

Evaluations of different days compare against them, so what they do changes on purpose only. After such a change:

    UPDATE_GOLDEN=1 python -m pytest tests/runners/werewolf/brains/test_panel.py

and say so in the changelog. ``expert`` is left out: its odds are floating-point sums.
"""

import hashlib
import os
from dataclasses import asdict
from pathlib import Path

import pytest

from runners.werewolf.game import PRESETS
from tests.support.game.game_playing import play_brains

FILE = Path(__file__).with_name("panel.txt")
GAMES = 10


@pytest.mark.parametrize("player", ["random", "timid", "scripted", "patient", "poser", "follower"])
def test_the_panel_plays_as_it_did(player):
    lines = []
    for preset in PRESETS.values():
        played = hashlib.sha256()
        for seed in range(GAMES):
            for event in play_brains(preset, seed, player).events:
                told = asdict(event) | {"audience": sorted(event.audience or ())}
                played.update(repr(sorted(told.items(), key=lambda item: item[0])).encode())
        lines.append(f"{player} {preset.name} {played.hexdigest()[:16]}")
    recorded = FILE.read_text(encoding="utf-8").splitlines()
    if os.environ.get("UPDATE_GOLDEN"):
        recorded = [line for line in recorded if not line.startswith(f"{player} ")] + lines
        FILE.write_text("\n".join(sorted(recorded)) + "\n", encoding="utf-8")
    assert set(lines) <= set(recorded)
