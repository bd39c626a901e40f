"""A run's evaluations as one web page that needs nothing else: no network, no server, no other file."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import plotly.graph_objects as go
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs
from plotly.subplots import make_subplots

from algo.evaluation.outcomes import Evaluation, Statistics, read_evaluations, with_ratings
from algo.machine.whole_files import write_whole
from algo.werewolf.game_statistics import Estimate
from algo.werewolf.matches import SIDES

PAGE_NAME = "evaluations.html"
_GREY = "rgb(128,128,128)"  # readable on white and on black
_FAINT = "rgba(128,128,128,0.25)"


def write_page(run_dir: Path) -> Path:
    """Write the page over all evaluations in a run's folder, and return its path.

    Ratings are computed anew, over all games in the order of the evaluations. Raises ValueError when there is no
    evaluation, or one that cannot be read.
    """
    evaluations = with_ratings(read_evaluations(run_dir))
    if not evaluations:
        raise ValueError(f"{run_dir} has no evaluations to show")
    path = run_dir / PAGE_NAME
    write_whole(path, render_page(run_dir.name, evaluations))
    return path


def page_environment(folder: Path) -> Environment:
    """Of the page templates in ``folder``."""
    return Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,  # names, reasons, settings, replies and transcripts: what models and other programs wrote
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def render_page(title: str, evaluations: Sequence[Evaluation]) -> str:
    """The page's HTML. evaluations: in their order, at least one; tables and transcripts are of the last."""
    found = [evaluation.statistics() for evaluation in evaluations]
    where = _positions(evaluations)
    charts = {
        "Win rate": _win_rates(evaluations, found, where),
        "Rating": _ratings(evaluations, where),
        "Conduct and length of games": _conduct(found, where),
    }
    environment = page_environment(Path(__file__).parent)
    environment.filters |= {"estimate": estimate_text, "number": _number, "counts": counts_text}
    return environment.get_template("page.html").render(
        title=title,
        evaluations=list(zip(evaluations, found, strict=True)),
        last=evaluations[-1],
        statistics=found[-1],
        sides=SIDES,
        roles=sorted({role for against in found[-1].by_opponent.values() for role in against.by_role}),
        reasons=list(dict.fromkeys([*evaluations[-1].failures, *evaluations[-1].retried])),
        charts={name: Markup(_html(chart)) for name, chart in charts.items()},
        plotly_script=Markup(get_plotlyjs()),
    )


def estimate_text(estimate: Estimate | None) -> str:
    """ "62 % (41–80)", or a dash."""
    if estimate is None:
        return "–"
    return f"{100 * estimate.value:.0f} % ({100 * estimate.low:.0f}–{100 * estimate.high:.0f})"


def counts_text(counts: Mapping[str, int]) -> str:
    """ "seer 75 %, villager 25 % of 8"; counts: at least one, none of them 0."""
    total = sum(counts.values())
    return ", ".join(f"{name} {100 * count / total:.0f} %" for name, count in counts.items()) + f" of {total}"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"


def _positions(evaluations: Sequence[Evaluation]) -> list[int] | list[str]:
    """Where evaluations stand from left to right: at their policy's version, or, where that says nothing, in a row."""
    versions = [evaluation.policy_version for evaluation in evaluations]
    if all(earlier < later for earlier, later in pairwise(versions)):
        return versions
    return [evaluation.label for evaluation in evaluations]


def _opponents(evaluations: Sequence[Evaluation]) -> list[str]:
    return list(dict.fromkeys(name for evaluation in evaluations for name in evaluation.opponents))


def _win_rates(
    evaluations: Sequence[Evaluation], found: Sequence[Statistics], where: Sequence[int] | Sequence[str]
) -> go.Figure:
    titles = {"wolf": "as the wolves", "good": "as the good side", "both": "both sides"}
    figure = make_subplots(rows=1, cols=len(titles), subplot_titles=list(titles.values()), shared_yaxes=True)
    for column, sides in enumerate(titles, start=1):
        for number, opponent in enumerate(_opponents(evaluations), start=1):

            def rate(statistics: Statistics, opponent: str = opponent, sides: str = sides) -> Estimate | None:
                against = statistics.by_opponent.get(opponent)
                if against is None:
                    return None
                return (against.both_sides if sides == "both" else against.by_side[sides]).win_rate

            line = _line(where, map(rate, found), f"against {opponent}", number)
            line.update(legendgroup=opponent, showlegend=column == 1)
            figure.add_trace(line, row=1, col=column)
        figure.add_hline(y=0.5, line={"color": _FAINT, "dash": "dot"}, row=1, col=column)
    figure.update_yaxes(range=[-0.02, 1.02], tickformat=".0%")
    return _style(figure, where)


def _ratings(evaluations: Sequence[Evaluation], where: Sequence[int] | Sequence[str]) -> go.Figure:
    figure = go.Figure()
    last = evaluations[-1]
    own = [last.ratings.get(evaluation.player) for evaluation in evaluations]
    figure.add_trace(
        _points(where, [rating and (rating.mu, rating.low, rating.high) for rating in own], "policy", 0, ".1f")
    )
    for number, name in enumerate(_opponents(evaluations), start=1):
        rating = last.ratings.get(name)
        if rating is None:  # none of the games against it finished
            continue
        points = [(rating.mu, rating.low, rating.high)] * len(where)
        line = _points(where, points, name, number, ".1f")
        line.update(mode="lines", line={"dash": "dash", "color": _color(number)}, error_y={"visible": len(where) == 1})
        figure.add_trace(line)
    return _style(figure, where)


def _conduct(found: Sequence[Statistics], where: Sequence[int] | Sequence[str]) -> go.Figure:
    shares: Mapping[str, Callable[[Statistics], Estimate | None]] = {
        "invalid replies": lambda statistics: statistics.conduct.invalid_replies,
        "games with a leak": lambda statistics: statistics.conduct.games_with_leak,
    }
    lengths: Mapping[str, Callable[[Statistics], float | None]] = {
        "days a game": lambda statistics: statistics.conduct.days,
        "replies a game": lambda statistics: statistics.conduct.turns_per_game,
    }
    figure = make_subplots(rows=1, cols=4, subplot_titles=[*shares, *lengths])
    for column, share in enumerate(shares.values(), start=1):
        figure.add_trace(_line(where, map(share, found), "policy", 0), row=1, col=column)
        figure.update_yaxes(rangemode="tozero", tickformat=".0%", row=1, col=column)
    for column, length in enumerate(lengths.values(), start=3):
        values = [length(statistics) for statistics in found]
        points = [None if value is None else (value, value, value) for value in values]
        figure.add_trace(_points(where, points, "policy", 0, ".1f"), row=1, col=column)
        figure.update_yaxes(rangemode="tozero", row=1, col=column)
    figure.update_traces(showlegend=False)
    return _style(figure, where)


def _line(
    where: Sequence[int] | Sequence[str], estimates: Iterable[Estimate | None], name: str, number: int
) -> go.Scatter:
    points = [estimate and (estimate.value, estimate.low, estimate.high) for estimate in estimates]
    return _points(where, points, name, number, ".0%")


def _points(
    where: Sequence[int] | Sequence[str],
    points: Sequence[tuple[float, float, float] | None],
    name: str,
    number: int,
    number_format: str,
) -> go.Scatter:
    """Values with their intervals, each (value, low, high); None where there is nothing to show."""
    shown = [(position, point) for position, point in zip(where, points, strict=True) if point is not None]
    return go.Scatter(
        x=[position for position, _ in shown],
        y=[value for _, (value, _, _) in shown],
        error_y={
            "array": [high - value for _, (value, _, high) in shown],
            "arrayminus": [value - low for _, (value, low, _) in shown],
            "thickness": 1,
        },
        customdata=[(low, high) for _, (_, low, high) in shown],
        hovertemplate=f"%{{y:{number_format}}} (%{{customdata[0]:{number_format}}} to "
        f"%{{customdata[1]:{number_format}}})",
        name=name,
        mode="lines+markers",
        line={"color": _color(number)},
    )


def _color(number: int) -> str:
    # Okabe and Ito's palette, which colour-blind people can tell apart, without black and yellow.
    palette = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
    return palette[number % len(palette)]


def _style(figure: go.Figure, where: Sequence[int] | Sequence[str]) -> go.Figure:
    figure.update_layout(
        template="none",
        height=340,
        margin={"l": 50, "r": 20, "t": 40, "b": 75},
        font={"color": _GREY},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        legend={"orientation": "h", "yref": "container", "y": 0.0},
    )
    in_a_row = isinstance(where[0], str)
    figure.update_xaxes(
        gridcolor=_FAINT,
        zeroline=False,
        type="category" if in_a_row else "linear",
        title="" if in_a_row else "updates made",
        **({} if in_a_row else {"tickformat": "d"}),
    )
    figure.update_yaxes(gridcolor=_FAINT, zeroline=False)
    return figure


def _html(figure: go.Figure) -> str:
    return figure.to_html(full_html=False, include_plotlyjs=False, config={"displayModeBar": False, "responsive": True})
