"""Gain of tricks against players without a model, on the same deals, and nonsense in their speeches."""

import csv
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

from rich.table import Table

from bench.tables import table_of
from runners.werewolf.game import PRESETS, Side
from runners.werewolf.local import play_locally, seeded_brains
from tests.support.werewolf.nonsense import KINDS, nonsense
from tests.support.werewolf.trick_players import CELLS, SMALLEST, gain

DEALS, GAMES = 2000, 1000
FIRST_DEAL = 10_000
"""Seed of the first deal; the weights of players were chosen on lower ones."""
EXPERT_SHARE = 0.2
"""Share of deals against ``expert``, which is much slower."""


def measure(scale: float, file: Path) -> Table:
    """The gain of each trick and pair of tricks, on all cores, against scripted players first.

    scale: of 2,000 deals a cell (a fifth of them against the expert).
    file: CSV with a row for each measured cell; a cell with a row is not measured again.
    """
    deals = {"scripted": max(2, round(DEALS * scale)), "expert": max(2, round(DEALS * EXPERT_SHARE * scale))}
    presets = [preset.name for preset in PRESETS.values() if len(preset.deck) >= SMALLEST]
    singles, pairs = [[names for names in CELLS if len(names) == count] for count in (1, 2)]
    cells = [
        (names, preset, other, deals[other])
        for other in deals
        for cells in (singles, pairs)
        for preset in reversed(presets)
        for names in cells
    ]
    with (
        file.open("a+", encoding="utf-8", newline="") as opened,
        ProcessPoolExecutor(mp_context=get_context("spawn")) as pool,
    ):
        opened.seek(0)
        rows = {tuple(row[:4]): row for row in csv.reader(opened)}
        left = [pool.submit(_row, *cell) for cell in cells if _key(*cell) not in rows]
        for done in as_completed(left):
            row = done.result()
            rows[tuple(row[:4])] = row
            csv.writer(opened).writerow(row)
            opened.flush()
    of_cell = {key: f"{100 * float(row[4]):+.1f} ±{196 * float(row[5]):.1f}" for key, row in rows.items()}
    columns = [(preset, other) for preset in presets for other in deals]
    return table_of(
        "Gain in win rate by tricks, points",
        ("tricks", *(f"{preset}, {other}" for preset, other in columns)),
        [
            (" + ".join(names), *(of_cell[_key(names, *column, deals[column[1]])] for column in columns))
            for names in CELLS
        ],
    )


def _key(names: Sequence[str], preset: str, other: str, deals: int) -> tuple[str, ...]:
    return " + ".join(names), preset, other, str(deals)


def _row(names: Sequence[str], preset: str, other: str, deals: int) -> list[str]:
    gained, error = gain(PRESETS[preset], names, other, range(FIRST_DEAL, FIRST_DEAL + deals))
    return [*_key(names, preset, other, deals), f"{gained:.4f}", f"{error:.5f}"]


def measure_nonsense(scale: float) -> Table:
    """Counts of senseless speeches. scale: of 1,000 games for each preset and player."""
    rows = []
    for preset in PRESETS.values():
        for player in ("scripted", "expert"):
            found, of = Counter(), Counter()
            for seed in range(max(1, round(GAMES * scale))):
                brains = seeded_brains(preset, seed, dict.fromkeys(Side, player))
                for total, counted in zip((found, of), nonsense(play_locally(preset, seed, brains)), strict=True):
                    total.update(counted)
            rows.append((f"{preset.name}, {player}", *(f"{found[kind]} of {of[kind]}" for kind in KINDS)))
    return table_of("What makes no sense", ("games of", *KINDS), rows)
