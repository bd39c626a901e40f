"""Gain of tricks against players without a model, on the same deals, and nonsense in their speeches."""

import csv
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

from rich.table import Table

from bench.tables import table_of
from bench.trick_players import CELLS, SMALLEST, changes_by_deal, mean_and_error
from runners.werewolf.game import PRESETS, Side
from runners.werewolf.local import play_locally, seeded_brains
from tests.support.werewolf.nonsense import KINDS, nonsense

LOOKS = {"scripted": (200, 500, 1000, 2000), "expert": (100, 200, 400)}
"""Deals after which a cell against this player is looked at; games of ``expert`` are much slower."""
FEWEST, LIMIT, CERTAIN = 100, 0.06, 2.58
"""A cell of so many deals whose gain plus so many standard errors (99 %) is below the limit gets no more deals."""
GAMES = 1000
FIRST_DEAL = 10_000
"""Seed of the first deal; the weights of players were chosen on lower ones."""


def measure(scale: float, file: Path) -> Table:
    """The gain of each trick and pair of tricks, on all cores, against scripted players first.

    scale: of the deals of ``LOOKS``.
    file: CSV with a row (tricks, preset, other side, deals, gain, standard error) for each measured cell. A later run
        measures again what had fewer deals at a smaller scale and is not certain; the last row of a cell counts.
    """
    looks = {other: [max(2, round(count * scale)) for count in counts] for other, counts in LOOKS.items()}
    presets = [preset.name for preset in PRESETS.values() if len(preset.deck) >= SMALLEST]
    singles, pairs = [[names for names in CELLS if len(names) == count] for count in (1, 2)]
    cells = [
        (names, preset, other)
        for other in looks
        for cells in (singles, pairs)
        for preset in reversed(presets)
        for names in cells
    ]
    with (
        file.open("a+", encoding="utf-8", newline="") as opened,
        ProcessPoolExecutor(mp_context=get_context("spawn")) as pool,
    ):
        opened.seek(0)
        rows = {tuple(row[:3]): row for row in csv.reader(opened)}
        left = [
            pool.submit(_row, *cell, looks[cell[-1]])
            for cell in cells
            if not _is_measured(rows.get(_key(*cell)), looks[cell[-1]][-1])
        ]
        for done in as_completed(left):
            row = done.result()
            rows[tuple(row[:3])] = row
            csv.writer(opened).writerow(row)
            opened.flush()
    of_cell = {key: f"{100 * float(row[4]):+.1f} ±{196 * float(row[5]):.1f} ({row[3]})" for key, row in rows.items()}
    columns = [(preset, other) for preset in presets for other in looks]
    return table_of(
        "Gain in win rate by tricks, points (deals)",
        ("tricks", *(f"{preset}, {other}" for preset, other in columns)),
        [(" + ".join(names), *(of_cell[_key(names, *column)] for column in columns)) for names in CELLS],
    )


def _key(names: Sequence[str], preset: str, other: str) -> tuple[str, ...]:
    return " + ".join(names), preset, other


def _is_certain(deals: int, gained: float, error: float) -> bool:
    return deals >= FEWEST and gained + CERTAIN * error < LIMIT


def _is_measured(row: list[str] | None, deals: int) -> bool:
    return row is not None and (int(row[3]) >= deals or _is_certain(int(row[3]), float(row[4]), float(row[5])))


def _row(names: Sequence[str], preset: str, other: str, looks: Sequence[int]) -> list[str]:
    changes = []
    for count in looks:
        deals = range(FIRST_DEAL + len(changes), FIRST_DEAL + count)
        changes += changes_by_deal(PRESETS[preset], names, other, deals)
        gained, error = mean_and_error(changes)
        if _is_certain(len(changes), gained, error):
            break
    return [*_key(names, preset, other), str(len(changes)), f"{gained:.4f}", f"{error:.5f}"]


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
