"""The figures of a learning run: one drawing for the files beside the page and for the page itself."""

import math
from collections.abc import Callable, Mapping, Sequence

from matplotlib.axes import Axes

from algo.learning.counts import change_of, curve_of, pooled_cells, training_win_rate, window_of
from algo.learning.run import LearningRun, step_of
from algo.reports.charts import (
    OF_ALL,
    PALETTE,
    Picture,
    before_and_after,
    chart_style,
    color_of,
    finish,
    legend,
    panels,
    picture,
    points,
)
from algo.werewolf.game_statistics import score_of_side
from algo.werewolf.matches import SIDES
from store.schema import TRAINED_POLICY

SIDE_TITLES = {"wolf": "the wolves", "good": "the good side"}
_OF_SIDES = {"wolf": PALETTE[1], "good": PALETTE[0]}
_STEPS = "steps made"


def draw_figures(run: LearningRun) -> dict[str, Picture]:
    """All figures for which the run has numbers, by name."""
    with chart_style():
        drawn = [draw(run) for draw in (_win_rates, _cross_table, _training, _rewards, _conduct, _imitation)]
    return {found.name: found for found in drawn if found is not None}


def _win_rates(run: LearningRun) -> Picture | None:
    """Each seed's win rate before and after, one below the other."""
    if not run.complete:
        return None
    rows = [(f"seed {seed.seed}", [seed]) for seed in run.complete]
    if len(rows) > 1:
        rows.append(("all seeds", list(run.complete)))
    figure, axes = panels(len(SIDES), len(SIDES), height=0.9 + 0.42 * len(rows))
    for panel, side in zip(axes, run.trained_first, strict=True):
        changes = {name: change_of(seeds, side, run.opponent) for name, seeds in rows}
        rates = {name: (change.before.win_rate, change.after.win_rate) for name, change in changes.items()}
        before_and_after(panel, rates, _OF_SIDES[side])
        trained = "trained" if side in run.trained_sides else "not trained"
        panel.set_title(f"as {SIDE_TITLES[side]} ({trained})", loc="left")
    return picture(
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
    figure, (axes,) = panels(1, 1, width=1.6 + 1.15 * len(players), height=1.4 + 0.8 * len(players))
    axes.grid(False)
    colors = [[rate.value if rate else math.nan for rate in row] for row in rates]
    axes.imshow(colors, cmap="RdBu_r", vmin=0, vmax=1, aspect="auto")
    for row, against in enumerate(rates):
        for column, rate in enumerate(against):
            if rate is not None:
                color = "white" if abs(rate.value - 0.5) > 0.3 else "black"
                text = f"{rate.value:.0%}\n{rate.low:.0%}–{rate.high:.0%}"
                axes.text(column, row, text, ha="center", va="center", color=color)
    names = ["warm-started\npolicy" if name == TRAINED_POLICY else name for name in players]
    axes.set_xticks(range(len(players)), names)
    axes.set_yticks(range(len(players)), names)
    axes.set(xlabel="good side played by", ylabel="wolves played by")
    axes.set_title("Share of games that the wolves win", loc="left")
    seeds = "" if len(tables) == 1 else f" Games of {len(tables)} seeds together, each with its own warm-started model."
    return picture(
        figure, "cross_table", f"Red: the wolves win more often; blue: they do not. With 95 % intervals.{seeds}"
    )


def _training(run: LearningRun) -> Picture | None:
    """Win rates in training, and those of the evaluations at their steps."""
    if not any(seed.steps or seed.evaluations for seed in run.seeds):
        return None
    figure, axes = panels(len(SIDES), len(SIDES), height=3.6)
    for panel, side in zip(axes, run.trained_first, strict=True):
        together = training_win_rate(run.seeds, side, _window(run))
        for number, seed in enumerate(run.seeds):
            curve = training_win_rate([seed], side, _window(run))
            _line(panel, [(step, rate.value) for step, rate in curve], number, f"seed {seed.seed}", _alone(run))
            found = [
                (step_of(each) + _shift(number, run), score_of_side(each.against(run.opponent), TRAINED_POLICY, side))
                for each in seed.evaluations
            ]
            rates = [(position, score.win_rate) for position, score in found]
            points(panel, rates, color_of(number), f"evaluation, seed {seed.seed}")
        if together:
            steps = [step for step, _ in together]
            band = [rate.low for _, rate in together], [rate.high for _, rate in together]
            color = PALETTE[0] if _alone(run) else OF_ALL
            panel.fill_between(steps, *band, color=color, alpha=0.18, linewidth=0, label="95 % band")
            if not _alone(run):
                panel.plot(steps, [rate.value for _, rate in together], color=OF_ALL, linewidth=2.2, label="all seeds")
        panel.set_ylim(-0.02, 1.02)
        trained = "" if together else "; not trained, only evaluated"
        finish(panel, f"Win rate as {SIDE_TITLES[side]}{trained}", percent=True, below=_STEPS)
    legend(figure, axes)
    together_of = "" if _alone(run) else " of all seeds together"
    moved = "" if _alone(run) else ", moved a little sideways so that they do not hide each other"
    return picture(
        figure,
        "training_win_rate",
        f"Lines: games of training, {_pooled(run)}, with a 95 % band (Wilson){together_of}. Points: evaluations "
        f"against {run.opponent} on held-out deals, with 95 % intervals{moved}.",
    )


def _rewards(run: LearningRun) -> Picture | None:
    """Rewards in training by side and by role."""
    of_roles = sorted(name for name in _logged(run) if name.startswith("reward/role/"))
    wanted: dict[str, tuple[str, Callable[[float], float]]] = {
        f"Reward, {name.removeprefix('reward/').replace('role/', 'role ')}": (name, float)
        for name in (*(f"reward/{side}" for side in run.trained_first), *of_roles)
    }
    what = "Mean reward of the trained seats' games, by side and by role"
    return _curves(run, "rewards", wanted, what, percent=False)


def _conduct(run: LearningRun) -> Picture | None:
    """Shares of replies that break the form or give an identity away, in training."""
    wanted: dict[str, tuple[str, Callable[[float], float]]] = {
        "Invalid replies": ("turns/valid_share", lambda share: 1.0 - share),
        **{
            f"Replies with an identity leak, {side}": (f"reward/dim/identity_leak/{side}", float)
            for side in run.trained_first
        },
    }
    return _curves(run, "conduct", wanted, "Shares of the policy's replies in games of training", percent=True)


def _imitation(run: LearningRun) -> Picture | None:
    """The warm start's loss on games that it did not learn from."""
    if all(seed.warm_start is None for seed in run.seeds):
        return None
    figure, (axes,) = panels(1, 1, width=5.0, height=3.0)
    for number, seed in enumerate(run.seeds):
        if seed.warm_start is not None:
            losses = list(enumerate(seed.warm_start["held_out_loss"]))
            _line(axes, losses, number, f"seed {seed.seed}", alone=True, marker="o")
    axes.set_ylim(bottom=0)
    finish(axes, "Held-out loss of the imitation, nats a token", percent=False, below="epochs made")
    axes.legend(fontsize=8)
    return picture(
        figure, "warm_start_loss", "Warm start: loss on replies of games, on other deals, that are not learned from."
    )


# --- parts of figures -------------------------------------------------------------------------------------------------


def _curves(
    run: LearningRun,
    name: str,
    wanted: Mapping[str, tuple[str, Callable[[float], float]]],
    what: str,
    *,
    percent: bool,
) -> Picture | None:
    """One panel for each metric that the run has logged: a line for each seed, and their mean.

    wanted: title -> (metric, what is shown of its values).
    """
    logged = {title: found for title, found in wanted.items() if found[0] in _logged(run)}
    if not logged:
        return None
    figure, axes = panels(len(logged), min(3, len(logged)), height=2.6)
    for panel, (title, (metric, shown)) in zip(axes, logged.items(), strict=True):
        for number, seed in enumerate(run.seeds):
            curve = [(step, shown(value)) for step, value in curve_of([seed], metric, _window(run))]
            _line(panel, curve, number, f"seed {seed.seed}", _alone(run))
        if not _alone(run):
            mean = [(step, shown(value)) for step, value in curve_of(run.seeds, metric, _window(run))]
            panel.plot(*zip(*mean, strict=True), color=OF_ALL, linewidth=2.2, label="mean of the seeds")
        if percent:
            panel.set_ylim(bottom=0)
        finish(panel, title, percent=percent, below=_STEPS)
    legend(figure, axes)
    return picture(figure, name, f"{what}, {_pooled(run)}.")


def _line(
    axes: Axes, curve: Sequence[tuple[int, float]], number: int, label: str, alone: bool, marker: str | None = None
) -> None:
    if curve:
        # Beside a mean the seeds stand back.
        width, alpha = (1.8, 1.0) if alone else (1.0, 0.65)
        look = {"color": color_of(number), "linewidth": width, "alpha": alpha, "marker": marker}
        axes.plot(*zip(*curve, strict=True), label=label, **look)


def _logged(run: LearningRun) -> set[str]:
    return {name for seed in run.seeds for _, metrics in seed.steps for name in metrics}


def _alone(run: LearningRun) -> bool:
    return len(run.seeds) == 1


def _shift(number: int, run: LearningRun) -> float:
    """How far to the right a seed's points stand, so that points of one step do not hide each other."""
    longest = max((seed.config.run.steps for seed in run.seeds if seed.config is not None), default=1)
    return (number - (len(run.seeds) - 1) / 2) * longest / 80


def _window(run: LearningRun) -> int:
    return window_of(run.config.run.steps)


def _pooled(run: LearningRun) -> str:
    window = _window(run)
    return "those of each step" if window == 1 else f"those of the {window} steps up to each together"
