"""Tokens of an update: one sequence per seat, against one per turn; the same recorded games."""

import asyncio
from pathlib import Path

from rich.table import Table

from bench.recorded import record_game
from bench.tables import table_of

GAMES = 3
PRESETS = ("12p_sheriff", "9p", "7p", "5p_tiny")


def measure(model_folder: Path) -> Table:
    rows = []
    for preset in PRESETS:
        per_seat = per_turn = turns_played = seats = 0
        for seed in range(GAMES):
            result, turns = asyncio.run(record_game(preset, seed, model_folder))
            seats += len(result.seats)
            turns_played += len(turns)
            per_seat += sum(len(turn.prompt_ids) + len(turn.response_ids) for turn in turns)
            per_turn += sum(turn.context_tokens + len(turn.prompt_ids) + len(turn.response_ids) for turn in turns)
        per_game = (f"{per_seat / GAMES:,.0f}", f"{per_turn / GAMES:,.0f}", f"{per_seat / per_turn:.3f}")
        rows.append((preset, f"{turns_played / seats:.1f}", *per_game))
    columns = ("preset", "turns a seat", "one sequence per seat", "one per turn", "ours / other")
    return table_of("Training tokens per game (scripted speeches, the tiny tokenizer)", columns, rows)
