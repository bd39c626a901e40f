"""Charts as PNG images that pages hold within themselves.

A chart is drawn inside ``chart_style()``: ``panels``, what is in them, ``finish`` for each, ``legend``, ``picture``.
"""

import io
import math
from base64 import b64encode
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from algo.evaluation.statistics import Estimate

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
"""Okabe and Ito's, which colour-blind people can tell apart, without black and yellow."""
OF_ALL = "#222222"

_STYLE = {
    "figure.dpi": 150,
    "font.size": 9,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "legend.frameon": False,
    "text.parse_math": False,  # a name with dollar signs is no formula
}


@dataclass(frozen=True)
class Picture:
    """A chart. name: of its file, without suffix. caption: what it shows and how it was counted."""

    name: str
    caption: str
    png: bytes

    @property
    def source(self) -> str:
        """For the ``src`` of an image."""
        return f"data:image/png;base64,{b64encode(self.png).decode('ascii')}"


def chart_style() -> AbstractContextManager[None]:
    """Everything that is drawn within has the same look."""
    return rc_context(_STYLE)


def color_of(number: int) -> str:
    """The colour of the ``number``-th of what a chart compares, from 0."""
    return PALETTE[number % len(PALETTE)]


def panels(count: int, columns: int, *, height: float, width: float = 9.0) -> tuple[Figure, list[Axes]]:
    """A figure with ``count`` panels. height: inches of a row of them."""
    rows = math.ceil(count / columns)
    figure = Figure(figsize=(width, height * rows), layout="constrained")
    return figure, [figure.add_subplot(rows, columns, number + 1) for number in range(count)]


def points(
    axes: Axes, found: Iterable[tuple[float, Estimate | None]], color: str, label: str, *, joined: bool = False
) -> None:
    """Values with their intervals, each (position, estimate); None where there is nothing to show."""
    known = [(position, rate) for position, rate in found if rate is not None]
    if known:
        errors = [[rate.value - rate.low for _, rate in known], [rate.high - rate.value for _, rate in known]]
        where, values = [position for position, _ in known], [rate.value for _, rate in known]
        form = "o-" if joined else "o"
        axes.errorbar(where, values, errors, fmt=form, color=color, markersize=4, capsize=2.5, lw=1.2, label=label)


def finish(axes: Axes, title: str, *, percent: bool, below: str) -> None:
    """Titles, and ticks at whole steps. percent: the values are shares."""
    axes.set_title(title, loc="left")
    axes.set_xlabel(below)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
    if percent:
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))


def legend(figure: Figure, axes: Sequence[Axes]) -> None:
    """One legend for all panels, below them."""
    entries = {label: handle for each in axes for handle, label in zip(*each.get_legend_handles_labels(), strict=True)}
    if entries:
        figure.legend(entries.values(), entries, loc="outside lower center", ncols=4, fontsize=8)


def picture(figure: Figure, name: str, caption: str) -> Picture:
    """The figure as an image; the same figure is the same bytes."""
    file = io.BytesIO()
    figure.savefig(file, format="png", facecolor="white", metadata={"Software": None})
    return Picture(name, caption, file.getvalue())
