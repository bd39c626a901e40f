"""Evaluations of agents as one web page that needs nothing else: of one run, or of several seeds beside each other."""

from collections.abc import Sequence
from pathlib import Path

from rich.box import SIMPLE
from rich.table import Table

from algo.agents.comparison import TO_GAIN, Compared
from algo.agents.outcomes import AgentEvaluation, AgentStatistics
from algo.evaluation.statistics import Estimate
from algo.machine.whole_files import write_whole
from algo.reports.charts import Picture, chart_style, color_of, finish, legend, panels, picture, points
from algo.reports.page_parts import estimate_text, page_environment

EVALUATIONS_PAGE = "evaluations.html"
"""In the run's folder."""


def write_page(path: Path, title: str, runs: Sequence[Compared], settings: str = "") -> None:
    """Write the page. runs: each with at least one evaluation. settings: as they are written; may be empty."""
    environment = page_environment(Path(__file__).parent)
    environment.filters |= {"share": estimate_text, "value": value_text}
    html = environment.get_template("page.html").render(
        title=title,
        runs=[(run, _columns(run), run.unmet()) for run in runs],
        to_gain=TO_GAIN,
        chart=_chart(runs),
        settings=settings,
    )
    write_whole(path, html)


def before_and_after(runs: Sequence[Compared]) -> Table:
    """The same for a terminal of 80 columns: three rows for each run."""
    table = Table(
        title="Held-out tasks before training and after, with 95 % intervals", title_justify="left", box=SIMPLE
    )
    for column in ("run", "", "before", "after"):
        table.add_column(column, overflow="fold")
    for run in runs:
        before, after = _statistics(run.before), _statistics(run.after)
        unmet = run.unmet()
        table.add_row(run.name, "mean reward", value_text(before and before.reward), value_text(after and after.reward))
        table.add_row(
            "",
            "invalid calls",
            estimate_text(before and before.invalid_calls, digits=1),
            estimate_text(after and after.invalid_calls, digits=1),
        )
        table.add_row(
            "", "gain by task", value_text(run.gain, sign=True), "no: " + "; ".join(unmet) if unmet else "learned"
        )
        table.add_section()
    return table


def value_text(estimate: Estimate | None, sign: bool = False) -> str:
    """ "0.297 (0.241 to 0.354)", or a dash. sign: also where it is positive."""
    if estimate is None:
        return "–"
    value, low, high = (
        f"{number:{'+' if sign else ''}.3f}" for number in (estimate.value, estimate.low, estimate.high)
    )
    return f"{value} ({low} to {high})"


def _statistics(evaluation: AgentEvaluation | None) -> AgentStatistics | None:
    return None if evaluation is None else evaluation.statistics()


def _columns(run: Compared) -> list[tuple[AgentEvaluation, AgentStatistics]]:
    return [(evaluation, evaluation.statistics()) for evaluation in run.evaluations]


def _chart(runs: Sequence[Compared]) -> Picture:
    shown = ("mean reward", "calls of tools that cannot be used", "attempts that failed")
    with chart_style():
        figure, axes = panels(len(shown), len(shown), height=3.4)
        for number, run in enumerate(runs):
            steps = [evaluation.step for evaluation in run.evaluations]
            found = [evaluation.statistics() for evaluation in run.evaluations]
            for panel, values in zip(
                axes,
                (
                    [each.reward for each in found],
                    [each.invalid_calls for each in found],
                    [each.failed for each in found],
                ),
                strict=True,
            ):
                points(panel, zip(steps, values, strict=True), color_of(number), run.name, joined=True)
        for panel, title in zip(axes, shown, strict=True):
            finish(panel, title, percent=title != shown[0], below="steps made")
            panel.set_ylim(bottom=min(0.0, panel.get_ylim()[0]))
        legend(figure, axes)
        return picture(figure, "evaluations", "Held-out tasks after so many steps, with 95 % intervals over tasks")
