"""Seconds of one 12-player game when every model call takes 200 ms: parallel against sequential questions."""

import asyncio
import time
from pathlib import Path

from rich.table import Table

from bench.recorded import record_game
from bench.tables import ratio_rows, table_of

CALL_SECONDS = 0.2
PRESET, SEED = "12p_sheriff", 7


async def _seconds(model_folder: Path, at_once: bool) -> tuple[float, int]:
    alone = asyncio.Lock()

    async def call() -> None:
        if at_once:
            await asyncio.sleep(CALL_SECONDS)
        else:
            async with alone:
                await asyncio.sleep(CALL_SECONDS)

    started = time.perf_counter()
    _, turns = await record_game(PRESET, SEED, model_folder, call)
    return time.perf_counter() - started, len(turns)


def measure(model_folder: Path) -> Table:
    together, calls = asyncio.run(_seconds(model_folder, at_once=True))
    one_by_one, calls_again = asyncio.run(_seconds(model_folder, at_once=False))
    assert calls == calls_again, "the two ways must play the same game"
    title = f"One {PRESET} game of {calls} calls, {CALL_SECONDS * 1000:.0f} ms each"
    rows = ratio_rows([("seconds", together, one_by_one)], ".1f")
    return table_of(title, ("", "parallel", "sequential", "parallel / sequential"), rows)
