"""``python -m bench [PART ...]``: measure and print. Absolute numbers depend on the machine; compare the ratios."""

import argparse
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from rich.console import Group, RenderableType

from algo.evaluation.page import wide_console
from algo.tiny_model import build_tiny_model
from bench import (
    agent_calls,
    branching,
    fleet,
    language,
    league_games,
    postgres,
    prefix_cache,
    prompt_search,
    small_requests,
    through_hub,
    training_step,
    training_tokens,
    tricks,
    waiting_time,
    web_pages,
    whole_games,
)
from store.program import run_program
from tests.support.hub.postgres_server import programs

PARTS: Mapping[str, Callable[[Path], RenderableType]] = {
    "games": whole_games.measure,
    "language": language.measure,
    "tokens": training_tokens.measure,
    "hub": lambda model: Group(small_requests.measure(model), through_hub.measure(model)),
    "fleet": fleet.measure,
    "waiting": waiting_time.measure,
    "prefix": prefix_cache.measure,
    "agents": agent_calls.measure,
    "prompts": prompt_search.measure,
    "step": training_step.measure,
    "lag": training_step.measure_lag,
    "league": league_games.measure,
    "branching": branching.measure,
    "web": web_pages.measure,
}
SCALED = {**postgres.PARTS, "nonsense": tricks.measure_nonsense}
_LONG = ("lag", "web", "tricks", *SCALED)
"""Parts that take many minutes or need PostgreSQL."""


def main() -> None:
    """Measure the named parts, or all."""
    known = (*PARTS, "tricks", *SCALED)
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measure and print. Absolute numbers depend on the machine; compare the ratios.",
    )
    text = f"any of {', '.join(known)} (default: all but {', '.join(_LONG)})"
    text += f"; {', '.join(postgres.PARTS)} need a PostgreSQL server on this machine"
    parser.add_argument("parts", nargs="*", metavar="PART", choices=known, help=text)
    text = f"scale of tricks, {', '.join(SCALED)}; 1: full size (default: %(default)s)"
    parser.add_argument("--scale", type=float, default=0.05, help=text)
    text = "CSV file of the results of tricks; cells in it are skipped (default: %(default)s)"
    parser.add_argument("--cells", type=Path, default=Path("tricks.csv"), metavar="FILE", help=text)
    options = parser.parse_args()
    if programs() is None and (needed := sorted({*options.parts} & {*postgres.PARTS})):
        parser.error(f"{', '.join(needed)}: no PostgreSQL server is installed (Debian: apt-get install postgresql)")
    console = wide_console()
    with tempfile.TemporaryDirectory() as folder:
        model = build_tiny_model(Path(folder) / "model")
        for name in options.parts or [name for name in known if name not in _LONG]:
            with console.status(f"measuring {name}"):
                if name == "tricks":
                    table = tricks.measure(options.scale, options.cells)
                else:
                    table = PARTS[name](model) if name in PARTS else SCALED[name](options.scale)
            console.print(table)


if __name__ == "__main__":
    run_program(main)
