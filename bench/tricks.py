"""Gain of tricks against players without a model, on the same deals, and nonsense in their speeches."""

from collections import Counter

from rich.console import Group

from bench.tables import table_of
from runners.werewolf.game import PRESETS, Side
from runners.werewolf.local import play_locally, seeded_brains
from tests.support.werewolf.nonsense import KINDS, nonsense
from tests.support.werewolf.trick_players import CELLS, SMALLEST, gain

DEALS, GAMES = 2000, 1000
EXPERT_SHARE = 0.1
"""Share of deals against ``expert``, which is much slower."""


def measure(scale: float) -> Group:
    """scale: of 2,000 deals a trick (a tenth of them against the expert) and 1,000 games checked for nonsense."""
    presets = [preset for preset in PRESETS.values() if len(preset.deck) >= SMALLEST]
    columns = [(preset, other) for preset in presets for other in ("scripted", "expert")]

    def cell(preset, other, names) -> str:
        share = EXPERT_SHARE if other == "expert" else 1.0
        gained, error = gain(preset, names, other, range(max(2, round(DEALS * share * scale))))
        return f"{100 * gained:+.1f} ±{196 * error:.1f}"

    tricks = [(" + ".join(names), *(cell(*column, names) for column in columns)) for names in CELLS]
    rows = []
    for preset in PRESETS.values():
        for player in ("scripted", "expert"):
            found, of = Counter(), Counter()
            for seed in range(max(1, round(GAMES * scale))):
                brains = seeded_brains(preset, seed, dict.fromkeys(Side, player))
                for total, counted in zip((found, of), nonsense(play_locally(preset, seed, brains)), strict=True):
                    total.update(counted)
            rows.append((f"{preset.name}, {player}", *(f"{found[kind]} of {of[kind]}" for kind in KINDS)))
    names = [f"{preset.name}, {other}" for preset, other in columns]
    return Group(
        table_of("Gain in win rate by tricks, points", ("tricks", *names), tricks),
        table_of("What makes no sense", ("games of", *KINDS), rows),
    )
