"""The figures of a learning run, as PNG images: one drawing for the files beside the page and for the page itself."""

import io
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from algo.learning.counts import (
    change_of,
    curve_of,
    pooled_cells,
    role_win_rates,
    training_win_rate,
    window_of,
)
from algo.learning.run import LearningRun, step_of
from algo.werewolf.game_statistics import Estimate, score_of_side
from algo.werewolf.matches import SIDES
from store.schema import TRAINED_POLICY

SIDE_TITLES = {"wolf": "the wolves", "good": "the good side"}

# Okabe and Ito's palette, which colour-blind people can tell apart, without black and yellow.
_PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
_OF_SIDES = {"wolf": "#D55E00", "good": "#0072B2"}
_OF_ALL = "#222222"
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
    """A figure. name: of its file, without suffix. caption: what it shows and how it was counted."""

    name: str
    caption: str
    png: bytes


def draw_figures(run: LearningRun) -> dict[str, Picture]:
    """All figures for which the run has numbers, by name."""
    with rc_context(_STYLE):
        drawn = [draw(run) for draw in (_win_rates, _cross_table, _training, _rewards, _conduct, _imitation, _roles)]
    return {picture.name: picture for picture in drawn if picture is not None}


def _win_rates(run: LearningRun) -> Picture | None:
    """Each seed's win rate before and after, one below the other."""
    if not run.complete:
        return None
    rows = [(f"seed {seed.seed}", [seed]) for seed in run.complete]
    if len(rows) > 1:
        rows.append(("all seeds", list(run.complete)))
    figure, panels = _panels(len(SIDES), len(SIDES), height=0.9 + 0.42 * len(rows))
    for axes, side in zip(panels, run.trained_first, strict=True):
        changes = {name: change_of(seeds, side, run.opponent) for name, seeds in rows}
        rates = {name: (change.before.win_rate, change.after.win_rate) for name, change in changes.items()}
        _before_and_after(axes, rates, _OF_SIDES[side])
        trained = "trained" if side in run.trained_sides else "not trained"
        axes.set_title(f"as {SIDE_TITLES[side]} ({trained})", loc="left")
    return _picture(
        figure,
        "win_rates",
        f"Win rate against {run.opponent} on held-out deals before (grey) and after training (coloured), with 95 % "
        "intervals.",
    )


def _cross_table(run: LearningRun) -> Picture | None:
    """Who beats whom, as a heat map of the wolves' win rate."""
    tables = [seed.cross_table for seed in run.seeds if seed.cross_table is not None]
    if not tables:
        return None
    players, cells = tables[0].players, pooled_cells(tables)
    rates = [[cells[wolf, good].win_rate("wolf") for good in players] for wolf in players]
    colors = [[rate.value if rate else math.nan for rate in row] for row in rates]
    figure, (axes,) = _panels(1, 1, width=1.6 + 1.15 * len(players), height=1.4 + 0.8 * len(players))
    axes.grid(False)
    axes.imshow(colors, cmap="RdBu_r", vmin=0, vmax=1, aspect="auto")
    for row, against in enumerate(rates):
        for column, rate in enumerate(against):
            if rate is not None:
                color = "white" if abs(rate.value - 0.5) > 0.3 else "black"
                text = f"{rate.value:.0%}\n{rate.low:.0%}–{rate.high:.0%}"
                axes.text(column, row, text, ha="center", va="center", color=color)
    names = [_player_title(name) for name in players]
    axes.set_xticks(range(len(players)), names)
    axes.set_yticks(range(len(players)), names)
    axes.set_xlabel("good side played by")
    axes.set_ylabel("wolves played by")
    axes.set_title("Share of games that the wolves win", loc="left")
    seeds = "" if len(tables) == 1 else f" Games of {len(tables)} seeds together, each with its own warm-started model."
    return _picture(
        figure, "cross_table", f"Red: the wolves win more often; blue: they do not. With 95 % intervals.{seeds}"
    )


def _training(run: LearningRun) -> Picture | None:
    """Win rates in training, and those of the evaluations at their steps."""
    if not any(seed.steps or seed.evaluations for seed in run.seeds):
        return None
    window = _window(run)
    figure, panels = _panels(len(SIDES), len(SIDES), height=3.6)
    for axes, side in zip(panels, run.trained_first, strict=True):
        for number, seed in enumerate(run.seeds):
            curve = training_win_rate([seed], side, window)
            _line(axes, [(step, rate.value) for step, rate in curve], number, f"seed {seed.seed}", alone=_alone(run))
            points = [
                (step_of(found), score_of_side(found.against(run.opponent), TRAINED_POLICY, side).win_rate)
                for found in seed.evaluations
            ]
            _points(
                axes, points, _shift(number, run), _PALETTE[number % len(_PALETTE)], f"evaluation, seed {seed.seed}"
            )
        together = training_win_rate(run.seeds, side, window)
        if together:
            steps = [step for step, _ in together]
            lows, highs = [rate.low for _, rate in together], [rate.high for _, rate in together]
            color = _PALETTE[0] if _alone(run) else _OF_ALL
            axes.fill_between(steps, lows, highs, color=color, alpha=0.18, linewidth=0, label="95 % band")
        if together and not _alone(run):
            axes.plot(steps, [rate.value for _, rate in together], color=_OF_ALL, linewidth=2.2, label="all seeds")
        axes.set_ylim(-0.02, 1.02)
        trained = "" if together else "; not trained, only evaluated"
        _finish(axes, f"Win rate as {SIDE_TITLES[side]}{trained}", percent=True)
    _legend(figure, panels)
    together_of = "" if _alone(run) else " of all seeds together"
    moved = "" if _alone(run) else ", moved a little sideways so that they do not hide each other"
    return _picture(
        figure,
        "training_win_rate",
        f"Lines: games of training, {_pooled(window)}, with a 95 % band (Wilson){together_of}. Points: evaluations "
        f"against {run.opponent} on held-out deals, with 95 % intervals{moved}.",
    )


def _rewards(run: LearningRun) -> Picture | None:
    """Rewards in training by side and by role."""
    found = {name for seed in run.seeds for _, metrics in seed.steps for name in metrics}
    names = [f"reward/{side}" for side in run.trained_first] + sorted(
        name for name in found if name.startswith("reward/role/")
    )
    titles = {name: f"Reward, {name.removeprefix('reward/').replace('role/', 'role ')}" for name in names}
    return _curves(
        run,
        "rewards",
        {titles[name]: (name, lambda value: value) for name in names if name in found},
        "Mean reward of the trained seats' games, by side and by role",
        percent=False,
    )


def _conduct(run: LearningRun) -> Picture | None:
    """Shares of replies that break the form or give an identity away, in training."""
    found = {name for seed in run.seeds for _, metrics in seed.steps for name in metrics}
    wanted: dict[str, tuple[str, Callable[[float], float]]] = {
        "Invalid replies": ("turns/valid_share", lambda share: 1.0 - share),
        **{
            f"Replies with an identity leak, {side}": (f"reward/dim/identity_leak/{side}", lambda share: share)
            for side in run.trained_first
        },
    }
    wanted = {title: (name, of) for title, (name, of) in wanted.items() if name in found}
    return _curves(run, "conduct", wanted, "Shares of the policy's replies in games of training", percent=True)


def _imitation(run: LearningRun) -> Picture | None:
    """The warm start's loss on games that it did not learn from."""
    losses = {seed.seed: seed.warm_start["held_out_loss"] for seed in run.seeds if seed.warm_start is not None}
    if not losses:
        return None
    figure, (axes,) = _panels(1, 1, width=5.0, height=3.0)
    for number, seed in enumerate(run.seeds):
        if seed.seed in losses:
            _line(axes, list(enumerate(losses[seed.seed])), number, f"seed {seed.seed}", alone=True, marker="o")
    axes.set_ylim(bottom=0)
    _finish(axes, "Held-out loss of the imitation, nats a token", percent=False, below="epochs made")
    axes.legend(fontsize=8)
    return _picture(
        figure, "warm_start_loss", "Warm start: loss on replies of games, on other deals, that are not learned from."
    )


def _roles(run: LearningRun) -> Picture | None:
    """Win rates by role before and after, over all seeds."""
    rates = role_win_rates(run.complete, run.opponent)
    if not rates:
        return None
    figure, (axes,) = _panels(1, 1, width=6.0, height=1.3 + 0.42 * len(rates))
    _before_and_after(axes, rates, _PALETTE[2])
    axes.set_title("Win rate of games with a seat of the role", loc="left")
    return _picture(
        figure,
        "roles",
        f"Evaluations against {run.opponent} before (grey) and after training (coloured), with 95 % intervals"
        f"{'' if _alone(run) else '; games of all seeds together'}.",
    )


# --- parts of figures -------------------------------------------------------------------------------------------------


def _curves(
    run: LearningRun,
    name: str,
    wanted: dict[str, tuple[str, Callable[[float], float]]],
    what: str,
    *,
    percent: bool,
) -> Picture | None:
    """One panel for each metric: a line for each seed, and their mean.

    wanted: title -> (metric, what is shown of its values).
    """
    if not wanted:
        return None
    window = _window(run)
    figure, panels = _panels(len(wanted), min(3, len(wanted)), height=2.6)
    for axes, (title, (metric, shown)) in zip(panels, wanted.items(), strict=False):
        for number, seed in enumerate(run.seeds):
            curve = [(step, shown(value)) for step, value in curve_of([seed], metric, window)]
            _line(axes, curve, number, f"seed {seed.seed}", alone=_alone(run))
        if not _alone(run):
            mean = [(step, shown(value)) for step, value in curve_of(run.seeds, metric, window)]
            axes.plot(*zip(*mean, strict=True), color=_OF_ALL, linewidth=2.2, label="mean of the seeds")
        if percent:
            axes.set_ylim(bottom=0)
        _finish(axes, title, percent=percent)
    _legend(figure, panels)
    return _picture(figure, name, f"{what}, {_pooled(window)}.")


def _panels(count: int, columns: int, *, height: float, width: float = 9.0) -> tuple[Figure, list[Axes]]:
    """A figure with ``count`` panels. height: inches of a row of them."""
    rows = math.ceil(count / columns)
    figure = Figure(figsize=(width, height * rows), layout="constrained")
    panels = [figure.add_subplot(rows, columns, number + 1) for number in range(count)]
    return figure, panels


def _line(
    axes: Axes, curve: Sequence[tuple[int, float]], number: int, label: str, *, alone: bool, marker: str | None = None
) -> None:
    if curve:
        color = _PALETTE[number % len(_PALETTE)]
        # Beside a mean the seeds stand back.
        width, alpha = (1.8, 1.0) if alone else (1.0, 0.65)
        axes.plot(*zip(*curve, strict=True), color=color, linewidth=width, alpha=alpha, label=label, marker=marker)


def _points(axes: Axes, points: Iterable[tuple[int, Estimate | None]], shift: float, color: str, label: str) -> None:
    known = [(step + shift, rate) for step, rate in points if rate is not None]
    if known:
        values = [rate.value for _, rate in known]
        errors = [
            [rate.value - rate.low for _, rate in known],
            [rate.high - rate.value for _, rate in known],
        ]
        steps = [step for step, _ in known]
        axes.errorbar(
            steps, values, errors, fmt="o", color=color, markersize=4, capsize=2.5, linewidth=1.2, label=label
        )


def _before_and_after(axes: Axes, rates: Mapping[str, tuple[Estimate | None, Estimate | None]], color: str) -> None:
    """A row for each name: its rate before in grey, and its rate after in a colour."""
    for number, pair in enumerate(rates.values()):
        for rate, offset, shown_in in zip(pair, (-0.15, 0.15), ("#888888", color), strict=True):
            if rate is not None:
                _horizontal(axes, rate, number + offset, shown_in)
    axes.set_yticks(range(len(rates)), list(rates))
    axes.set_ylim(len(rates) - 0.4, -0.6)
    axes.set_xlim(-0.02, 1.02)
    axes.xaxis.set_major_formatter(PercentFormatter(1.0))


def _horizontal(axes: Axes, rate: Estimate, where: float, color: str) -> None:
    errors = [[rate.value - rate.low], [rate.high - rate.value]]
    axes.errorbar([rate.value], [where], xerr=errors, fmt="o", color=color, markersize=5, capsize=3)
    axes.annotate(
        f"{rate.value:.0%}", (rate.high, where), xytext=(5, 0), textcoords="offset points", va="center", color=color
    )


def _finish(axes: Axes, title: str, *, percent: bool, below: str = "steps made") -> None:
    axes.set_title(title, loc="left")
    axes.set_xlabel(below)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
    if percent:
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))


def _legend(figure: Figure, panels: Sequence[Axes]) -> None:
    """One legend for all panels, below them."""
    entries = {
        label: handle for axes in panels for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    if entries:
        figure.legend(entries.values(), entries, loc="outside lower center", ncols=4, fontsize=8)


def _alone(run: LearningRun) -> bool:
    return len(run.seeds) == 1


def _shift(number: int, run: LearningRun) -> float:
    """How far to the right a seed's points stand, so that points of one step do not hide each other."""
    longest = max((seed.config.run.steps for seed in run.seeds if seed.config is not None), default=1)
    return (number - (len(run.seeds) - 1) / 2) * longest / 80


def _window(run: LearningRun) -> int:
    return window_of(run.config.run.steps)


def _pooled(window: int) -> str:
    return "those of each step" if window == 1 else f"those of the {window} steps up to each together"


def _player_title(name: str) -> str:
    return "warm-started\npolicy" if name == TRAINED_POLICY else name


def _picture(figure: Figure, name: str, caption: str) -> Picture:
    file = io.BytesIO()
    figure.savefig(file, format="png", facecolor="white", metadata={"Software": None})
    return Picture(name, caption, file.getvalue())
