"""``python -m bench [PART ...]``: measure and print. Absolute numbers depend on the machine; look at the ratios."""

import argparse
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from rich.console import Group
from rich.table import Table

from algo.evaluation.page import wide_console
from algo.tiny_model import build_tiny_model
from bench import (
    agent_calls,
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
    waiting_time,
    web_pages,
    whole_games,
)

DEFAULT_SCALE = 0.05

PARTS: Mapping[str, Callable[[Path], Table | Group]] = {
    "games": lambda model: whole_games.measure(),
    "language": lambda model: language.measure(),
    "tokens": training_tokens.measure,
    "hub": lambda model: Group(small_requests.measure(model), through_hub.measure(model)),
    "fleet": fleet.measure,
    "waiting": waiting_time.measure,
    "prefix": prefix_cache.measure,
    "agents": agent_calls.measure,
    "prompts": lambda model: prompt_search.measure(),
    "step": training_step.measure,
    "lag": training_step.measure_lag,
    "league": league_games.measure,
    "web": web_pages.measure,
}

_LONG = ("lag", "web")
"""Which take many minutes."""


def main() -> None:
    """Measure the named parts, or all."""
    known = (*PARTS, *postgres.PARTS)
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "parts",
        nargs="*",
        metavar="PART",
        help=f"any of {', '.join(known)} (default: all but {', '.join((*_LONG, *postgres.PARTS))})",
    )
    parser.add_argument(
        "--scale",
        type=float,
        default=DEFAULT_SCALE,
        help=f"size of {', '.join(postgres.PARTS)}, 1 being the whole (%(default)s)",
    )
    options = parser.parse_args()
    unknown = sorted(set(options.parts) - set(known))
    if unknown:
        parser.error(f"unknown parts {unknown}; known: {', '.join(known)}")
    console = wide_console()
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model"
        if not set(options.parts) <= set(postgres.PARTS) or not options.parts:
            build_tiny_model(model)
        for name in options.parts or (name for name in PARTS if name not in _LONG):
            with console.status(f"measuring {name}"):
                table = PARTS[name](model) if name in PARTS else postgres.PARTS[name](options.scale)
            console.print(table)


if __name__ == "__main__":
    main()
