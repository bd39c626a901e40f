"""Charts as PNG images that are embedded in pages."""

import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from algo.evaluation.page import Picture
from algo.evaluation.statistics import Estimate

_PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
"""Okabe and Ito's palette for colour-blind readers, without black and yellow."""
_NEUTRAL = ("#999999", "#000000")
"""For a chart with names, whose points are no seeds."""
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
_COLUMNS, _WIDTH, _HEIGHT = 3, 9.0, 2.8  # inches of a figure, and of a row of charts


@dataclass(frozen=True)
class Chart:
    """lines: label -> (step, value) of each. points: label -> (step, estimate), shown with their intervals.

    names: of the places 0, 1, … on the x axis, where it has no steps. percent: the values are shares.
    """

    title: str
    lines: Mapping[str, Sequence[tuple[float, float]]]
    points: Mapping[str, Sequence[tuple[float, Estimate]]]
    percent: bool
    names: Sequence[str] = ()


def draw(charts: Sequence[Chart], caption: str, below: str) -> Picture:
    """Charts side by side, with one legend; equal charts give equal bytes. below: label of the x axis."""
    rows = math.ceil(len(charts) / _COLUMNS)
    entries = {}
    with rc_context(_STYLE):
        figure = Figure(figsize=(_WIDTH, _HEIGHT * rows), layout="constrained")
        for number, chart in enumerate(charts, 1):
            axes = figure.add_subplot(rows, min(_COLUMNS, len(charts)), number)
            for index, (label, line) in enumerate(chart.lines.items()):
                axes.plot(*zip(*line, strict=True), color=_PALETTE[index % len(_PALETTE)], label=label)
            for index, (label, found) in enumerate(chart.points.items()):
                colors = _NEUTRAL if chart.names else _PALETTE
                color = colors[index % len(colors)]
                where, values = [step for step, _ in found], [rate.value for _, rate in found]
                errors = [[rate.value - rate.low for _, rate in found], [rate.high - rate.value for _, rate in found]]
                axes.errorbar(
                    where, values, errors, fmt="o", color=color, markersize=4, capsize=2.5, lw=1.2, label=label
                )
            axes.set_title(chart.title, loc="left")
            if chart.names:
                axes.set_xticks(range(len(chart.names)), chart.names, fontsize=8)
            else:
                axes.set_xlabel(below)
                axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
            if chart.percent:
                axes.yaxis.set_major_formatter(PercentFormatter(1.0))
                if chart.points:
                    axes.set_ylim(bottom=0)
            entries |= {label: handle for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
        if entries:
            figure.legend(entries.values(), entries, loc="outside lower center", ncols=4, fontsize=8)
        file = io.BytesIO()
        figure.savefig(file, format="png", facecolor="white", metadata={"Software": None})
    return Picture(caption, file.getvalue())
