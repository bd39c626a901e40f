"""``python -m bench [PART ...]``: measure and print. Absolute numbers depend on the machine; look at the ratios."""

import argparse
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from bench import (
    agent_calls,
    fleet,
    postgres,
    prefix_cache,
    prompt_search,
    small_requests,
    through_hub,
    training_step,
    training_tokens,
    waiting_time,
    web_pages,
    whole_games,
)
from rich.console import Console, Group
from rich.table import Table

from algo.tiny_model import build_tiny_model

DEFAULT_SCALE = 0.05

PARTS: Mapping[str, Callable[[Path], Table | Group]] = {
    "games": lambda model: whole_games.measure(),
    "tokens": training_tokens.measure,
    "hub": lambda model: Group(small_requests.measure(model), through_hub.measure(model)),
    "fleet": fleet.measure,
    "waiting": waiting_time.measure,
    "prefix": prefix_cache.measure,
    "agents": agent_calls.measure,
    "prompts": lambda model: prompt_search.measure(),
    "step": training_step.measure,
    "web": web_pages.measure,
}


def main() -> None:
    """Measure the named parts, or all."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "parts",
        nargs="*",
        metavar="PART",
        help=f"any of {', '.join(PARTS)}, postgres (default: all but web and postgres)",
    )
    parser.add_argument(
        "--scale", type=float, default=DEFAULT_SCALE, help="share of the loads of `postgres` (%(default)s)"
    )
    options = parser.parse_args()
    known = (*PARTS, "postgres")
    unknown = sorted(set(options.parts) - set(known))
    if unknown:
        parser.error(f"unknown parts {unknown}; known: {', '.join(known)}")
    console = Console(width=None if sys.stdout.isatty() else 110)
    with tempfile.TemporaryDirectory() as folder:
        model = build_tiny_model(Path(folder) / "model")
        for name in options.parts or (name for name in PARTS if name != "web"):  # which fills a hub for minutes
            with console.status(f"measuring {name}"):
                table = postgres.measure(options.scale) if name == "postgres" else PARTS[name](model)
            console.print(table)


if __name__ == "__main__":
    main()
