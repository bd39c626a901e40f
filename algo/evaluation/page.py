"""A run's evaluations as one web page that needs nothing else: no network, no server, no other file."""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from matplotlib.axes import Axes

from algo.evaluation.outcomes import Evaluation, Statistics, read_evaluations, with_ratings
from algo.evaluation.ratings import Rating
from algo.evaluation.statistics import Estimate
from algo.machine.whole_files import write_whole
from algo.reports.charts import OF_ALL, Picture, chart_style, color_of, finish, legend, panels, picture, points
from algo.reports.page_parts import counts_text, estimate_text, page_environment
from algo.werewolf.matches import SIDES

PAGE_NAME = "evaluations.html"


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


def render_page(title: str, evaluations: Sequence[Evaluation]) -> str:
    """The page's HTML. evaluations: in their order, at least one; tables and transcripts are of the last."""
    found = [evaluation.statistics() for evaluation in evaluations]
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
        charts=_charts(evaluations, found),
    )


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"


def _charts(evaluations: Sequence[Evaluation], found: Sequence[Statistics]) -> dict[str, Picture]:
    with chart_style():
        return {
            "Win rate": _win_rates(evaluations, found),
            "Rating": _ratings(evaluations),
            "Conduct and length of games": _conduct(evaluations, found),
        }


def _win_rates(evaluations: Sequence[Evaluation], found: Sequence[Statistics]) -> Picture:
    titles = {"wolf": "as the wolves", "good": "as the good side", "both": "both sides"}
    figure, axes = panels(len(titles), len(titles), height=3.4)
    where = _positions(evaluations)
    for panel, sides in zip(axes, titles, strict=True):
        for number, opponent in enumerate(_opponents(evaluations), start=1):
            against = [statistics.by_opponent.get(opponent) for statistics in found]
            rates = [
                each and (each.both_sides if sides == "both" else each.by_side[sides]).win_rate for each in against
            ]
            points(panel, zip(where, rates, strict=True), color_of(number), f"against {opponent}", joined=True)
        panel.axhline(0.5, color=OF_ALL, linewidth=0.6, linestyle=":")
        panel.set_ylim(-0.02, 1.02)
        _finish(panel, titles[sides], evaluations, percent=True)
    legend(figure, axes)
    return picture(figure, "win_rates", "Win rate against each opponent, as the wolves, as the good side, and as both")


def _ratings(evaluations: Sequence[Evaluation]) -> Picture:
    figure, (axes,) = panels(1, 1, height=3.4)
    where, last = _positions(evaluations), evaluations[-1]
    own = [_as_estimate(last.ratings.get(evaluation.player)) for evaluation in evaluations]
    points(axes, zip(where, own, strict=True), color_of(0), "policy", joined=True)
    for number, name in enumerate(_opponents(evaluations), start=1):
        rating = _as_estimate(last.ratings.get(name))
        if rating is not None:  # else none of the games against it finished
            axes.axhline(rating.value, color=color_of(number), linewidth=1.2, linestyle="--", label=name)
            axes.axhspan(rating.low, rating.high, color=color_of(number), alpha=0.06, linewidth=0)
    _finish(axes, "rating", evaluations, percent=False)
    legend(figure, [axes])
    return picture(
        figure, "ratings", "Ratings of the policy, and of its opponents as they stand at the last evaluation"
    )


def _conduct(evaluations: Sequence[Evaluation], found: Sequence[Statistics]) -> Picture:
    shown: Mapping[str, Callable[[Statistics], Estimate | float | None]] = {
        "invalid replies": lambda statistics: statistics.conduct.invalid_replies,
        "games with a leak": lambda statistics: statistics.conduct.games_with_leak,
        "days a game": lambda statistics: statistics.conduct.days,
        "replies a game": lambda statistics: statistics.conduct.turns_per_game,
    }
    figure, axes = panels(len(shown), len(shown), height=2.6)
    for panel, (title, of) in zip(axes, shown.items(), strict=True):
        values = [of(statistics) for statistics in found]
        known = [
            Estimate(value=each, low=each, high=each) if isinstance(each, int | float) else each for each in values
        ]
        points(panel, zip(_positions(evaluations), known, strict=True), color_of(0), "policy", joined=True)
        panel.set_ylim(bottom=0)
        _finish(panel, title, evaluations, percent=any(isinstance(each, Estimate) for each in values))
    return picture(figure, "conduct", "Shares of replies and of games that break the form, and how long games are")


def _as_estimate(rating: Rating | None) -> Estimate | None:
    return rating and Estimate(value=rating.mu, low=rating.low, high=rating.high)


def _opponents(evaluations: Sequence[Evaluation]) -> list[str]:
    return list(dict.fromkeys(name for evaluation in evaluations for name in evaluation.opponents))


def _positions(evaluations: Sequence[Evaluation]) -> list[int]:
    """Where evaluations stand from left to right: at their policy's version, or, where that says nothing, in a row."""
    return [each.policy_version for each in evaluations] if _have_versions(evaluations) else [*range(len(evaluations))]


def _have_versions(evaluations: Sequence[Evaluation]) -> bool:
    return all(earlier.policy_version < later.policy_version for earlier, later in pairwise(evaluations))


def _finish(axes: Axes, title: str, evaluations: Sequence[Evaluation], *, percent: bool) -> None:
    in_a_row = not _have_versions(evaluations)
    finish(axes, title, percent=percent, below="" if in_a_row else "updates made")
    if in_a_row:
        axes.set_xticks(_positions(evaluations), [evaluation.label for evaluation in evaluations])
