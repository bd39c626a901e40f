"""What all pages have in common: how templates are filled, and how numbers are written."""

from collections.abc import Mapping
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from algo.evaluation.statistics import Estimate


def page_environment(folder: Path) -> Environment:
    """Of the page templates in ``folder``."""
    return Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,  # names, reasons, settings, replies and transcripts: what models and other programs wrote
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def estimate_text(estimate: Estimate | None, digits: int = 0) -> str:
    """ "62 % (41–80)", or a dash."""
    if estimate is None:
        return "–"
    value, low, high = (f"{100 * share:.{digits}f}" for share in (estimate.value, estimate.low, estimate.high))
    return f"{value} % ({low}–{high})"


def counts_text(counts: Mapping[str, int]) -> str:
    """ "seer 75 %, villager 25 % of 8"; counts: at least one, none of them 0."""
    total = sum(counts.values())
    return ", ".join(f"{name} {100 * count / total:.0f} %" for name, count in counts.items()) + f" of {total}"
