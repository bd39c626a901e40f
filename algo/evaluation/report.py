"""An evaluation of the game as sections of a page, and as tables on a terminal."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from matplotlib.axes import Axes

from algo.evaluation.charts import OF_ALL, Picture, chart_style, color_of, finish, legend, panels, picture, points
from algo.evaluation.figures import AMONG, Among, Figures, GameEvaluation, SideScore, differences, figures_of
from algo.evaluation.games import GameRow, Sample
from algo.evaluation.page import Page, Section, Table, counts_text, share_text, signed_text, value_text
from algo.evaluation.record import PAGE_FILE, Record
from algo.evaluation.statistics import Estimate
from algo.werewolf.matches import SIDES
from store.schema import TRAINED_POLICY

_LEAD = (
    "The policy plays held-out deals, which are never trained on, as the wolves and as the good side. A win rate is "
    "wins / games; a draw is no win. In brackets: 95 % confidence intervals, Wilson's where each deal is played once, "
    "else by resampling deals."
)
_AMONG_NAMES: Mapping[Among, str] = {"all": "all games", "without_errors": "games without errors"}


def write_page(run_dir: Path) -> Path:
    """Write the page over all evaluations of a run; returns its path. Raises ValueError where there are none."""
    evaluations = Record(run_dir, GameRow).read()
    if not evaluations:
        raise ValueError(f"{run_dir} has no evaluations to show")
    return page_of(run_dir.name, evaluations).write(run_dir / PAGE_FILE)


def page_of(title: str, evaluations: Sequence[GameEvaluation]) -> Page:
    """The page. evaluations: in their order, at least one; tables and transcripts are of the last."""
    last = evaluations[-1]
    found = [figures_of(evaluation) for evaluation in evaluations]
    sections = [
        Section(last.header.label, tables=tuple(tables_of(last))),
        Section("Curves", pictures=_charts(evaluations, found)) if len(found) > 1 else None,
        Section("All evaluations", tables=(_overview(evaluations, found), *_comparisons(evaluations))),
        Section(f"Sample games, {last.header.label}", texts=sample_texts(last)),
    ]
    facts = {
        "policy": f"{last.header.player} {last.header.model}",
        "panel": f"{last.header.panel}, terms {last.header.digest}, seed {last.header.seed}",
        "games": f"{len(last.rows)} of {sum(last.header.planned.values())}",
        "what they can show": last.header.notes,
    }
    return Page(f"Evaluations of {title}", [one for one in sections if one], lead=[_LEAD], facts=facts)


def tables_of(evaluation: GameEvaluation) -> Iterator[Table]:
    """All tables of one evaluation, for all games and, where it differs, for those without errors."""
    for among in AMONG:
        figures = figures_of(evaluation, among)
        if among != "all" and figures.games in (0, len(evaluation.rows)):
            continue
        suffix = f"; {figures.games} games ({_AMONG_NAMES[among]})"
        for table in _tables(figures):
            if table.rows:
                yield Table(table.caption + suffix, table.head, table.rows)
    reasons = dict.fromkeys([*evaluation.failures, *evaluation.retried])
    counts = [(each, str(evaluation.failures.get(each, 0)), str(evaluation.retried.get(each, 0))) for each in reasons]
    yield Table("Failures", ("reason", "games failed", "attempts repeated"), counts)


def cell_table(figures: Figures) -> Table:
    """Who beats whom: the share of the games that the wolves (row) won against the good side (column)."""
    cells = {(cell.wolf, cell.good): cell for cell in figures.cells}
    players = list(dict.fromkeys(name for pair in cells for name in pair))
    rows = [
        (wolf, *(share_text(cells[wolf, good].win_rate("wolf") if (wolf, good) in cells else None) for good in players))
        for wolf in players
        if any(wolf == pair[0] for pair in cells)
    ]
    return Table("Games won by the wolves (row) against the good side (column)", ("wolves", *players), rows)


def sample_texts(evaluation: GameEvaluation) -> list[tuple[str, str]]:
    """(title, transcript and replies) of the games that were kept whole."""
    return [(row.task_id, sample_text(row, row.sample)) for row in evaluation.rows if row.sample is not None]


def sample_text(row: GameRow, sample: Sample) -> str:
    """A game with what each of the policy's seats thought and replied."""
    seats = [
        f"{seat.seat}号 {seat.role} ({seat.player}), reward {seat.reward:+.2f}\n"
        + "\n".join(
            f"  {turn.day} {turn.decision}: {turn.thought + ' → ' if turn.thought else ''}{turn.reply!r}"
            + (f" ({turn.error})" if turn.error else "")
            for turn in sample.turns
            if turn.seat == seat.seat
        )
        for seat in row.seats
        if seat.reward is not None
    ]
    return "\n\n".join([sample.transcript, *seats])


# --- tables -----------------------------------------------------------------------------------------------------------


def _tables(figures: Figures) -> Iterator[Table]:
    yield _rates(figures)
    roles = sorted({role for against in figures.opponents.values() for role in against.by_role})
    yield Table(
        "Games won, by role of the policy's seats",
        ("role", *(f"against {name}" for name in figures.opponents)),
        [
            (
                role,
                *(
                    share_text(against.by_role[role].win_rate if role in against.by_role else None)
                    for against in figures.opponents.values()
                ),
            )
            for role in roles
        ],
    )
    yield cell_table(figures)
    yield _strengths(figures)
    yield Table(
        "Conduct of the policy",
        ("side", "replies", "unusable", "decided by default", "games with an identity leak", "days", "replies a game"),
        [
            (
                side,
                str(conduct.turns),
                share_text(conduct.invalid_replies),
                str(conduct.defaulted_decisions),
                share_text(conduct.games_with_leak),
                _number(conduct.days),
                _number(conduct.turns_per_game),
            )
            for side, conduct in figures.conduct.items()
            if conduct.turns
        ],
    )
    yield _votes(figures)
    yield _deeds(figures)
    yield _beliefs(figures)
    yield Table(
        "Calibration",
        ("good seats of", "said to be a wolf", "are wolves", "seats"),
        [
            (player, f"{each.said:.2f}", f"{each.true:.2f}", str(each.seats))
            for player, report in figures.beliefs.items()
            for each in report.own.calibration
        ],
    )


def _rates(figures: Figures) -> Table:
    compared = any(score.reference for _, _, score in _side_scores(figures))
    head = ["policy", "games won", "games", "draws", "not finished"]
    if compared:
        head[2:2] = ["the reference in its place", "points between them"]
    rows = []
    for name, side, score in _side_scores(figures):
        missing = figures.opponents[name].not_finished if name in figures.opponents and side == SIDES[0] else ""
        row = [f"{side} against {name}", share_text(score.win_rate), str(score.games), str(score.draws), str(missing)]
        if compared:
            row[2:2] = [share_text(score.reference), signed_text(score.difference, 100, 0)]
        rows.append(row)
    for name, against in figures.opponents.items():
        both = against.both_sides
        row = [f"both sides against {name}", share_text(both.win_rate), str(both.games), str(both.draws), ""]
        rows.append(row[:2] + ["", ""] * compared + row[2:])
    return Table("Win rates", head, rows)


def _side_scores(figures: Figures) -> Iterator[tuple[str, str, SideScore]]:
    for name, against in figures.opponents.items():
        yield from ((name, side, score) for side, score in against.by_side.items())
    yield from (("mixed players, in a single seat", side, score) for side, score in figures.single_seats.items())


def _strengths(figures: Figures) -> Table:
    fit = figures.strengths
    if fit is None:
        return Table("Strengths", (), ())
    rows = [(name, *(signed_text(of[name]) for of in (fit.players, fit.as_wolf, fit.as_good))) for name in fit.players]
    rows += [(f"policy as {role}, beyond its side", signed_text(more), "", "") for role, more in fit.roles.items()]
    rows += [("the good side between equals", signed_text(fit.advantage), "", "")]
    head = ("player", "overall", "as the wolves", "as the good side")
    return Table(f"Strengths in log-odds by one fit (Bradley-Terry), {fit.reference} is 0", head, rows)


def _votes(figures: Figures) -> Table:
    head = ("player and side", "votes", "abstained", "name a wolf", "odds of whom they name", "the expert's best odds",
            "by chance", "as the expert", "pivotal", "pivotal ones that name a wolf")  # fmt: skip
    rows = []
    for deeds in figures.deeds:
        votes = deeds.votes
        shares = (votes.on_wolf, votes.odds, votes.expert, votes.chance, votes.as_expert)
        last = (str(votes.pivotal), share_text(votes.pivotal_on_wolf))
        who = f"{deeds.player}, {deeds.side}"
        rows.append((who, str(votes.cast), str(votes.abstained), *map(share_text, shares), *last))
    return Table("Votes to exile, against the expert's odds of what was public", head, rows)


def _deeds(figures: Figures) -> Table:
    rows = []
    for deeds in figures.deeds:
        who = f"{deeds.player}, {deeds.side}"
        rows += [(who, name, counts_text(counts)) for name, counts in deeds.counts().items()]
        rows += [(who, f"{role} alive at the end", share_text(share)) for role, share in deeds.survival.items()]
    return Table("What seats did", ("player and side", "of", "shares"), rows)


def _beliefs(figures: Figures) -> Table:
    head = ("good seats of", "answers", "Brier score", "log loss", "AUC", "calibration error", "listened",
            "mass on roles")  # fmt: skip
    rows = []
    for player, report in figures.beliefs.items():
        for name, scores in (
            ("", report.own),
            (": exact odds", report.exact),
            (": deaf", report.deaf),
            (": the deck", report.deck),
        ):
            shown = (report.listened, report.mass) if not name else (None, None)
            values = (value_text(each) for each in (scores.brier, scores.log_loss, scores.auc))
            last = ("" if each is None else f"{each:.3f}" for each in shown)
            rows.append((player + name, str(scores.answers), *values, f"{scores.calibration_error:.3f}", *last))
    return Table("Beliefs before votes, beside the expert's odds with and without what was said", head, rows)


def _overview(evaluations: Sequence[GameEvaluation], found: Sequence[Figures]) -> Table:
    head = ("evaluation", "policy", "win rate", "games", "not finished", "unusable replies", "strength")
    rows = [
        (
            evaluation.header.label,
            evaluation.header.player,
            share_text(figures.all_games.win_rate),
            str(figures.games),
            str(evaluation.not_finished),
            share_text(figures.conduct["both"].invalid_replies),
            signed_text(None if figures.strengths is None else figures.strengths.players.get(TRAINED_POLICY)),
        )
        for evaluation, figures in zip(evaluations, found, strict=True)
    ]
    return Table("Over all opponents", head, rows)


def _comparisons(evaluations: Sequence[GameEvaluation]) -> Iterator[Table]:
    """The last evaluation less each other of the same terms."""
    last = evaluations[-1]
    for other in evaluations[:-1]:
        if other.header.digest == last.header.digest:
            yield difference_table(last, other)


def difference_table(ours: GameEvaluation, other: GameEvaluation) -> Table:
    """One evaluation less another of the same terms, deal by deal."""
    rows = [
        (each.what, signed_text(each.value, 100, 1) if each.share else signed_text(each.value, 1, 3), str(each.deals))
        for each in differences(ours, other)
    ]
    caption = f"{ours.header.label} less {other.header.label}, deal by deal"
    return Table(caption, ("figure", "difference: points, scores as they are", "deals of both"), rows)


# --- charts -----------------------------------------------------------------------------------------------------------


def _charts(evaluations: Sequence[GameEvaluation], found: Sequence[Figures]) -> tuple[Picture, ...]:
    with chart_style():
        return _win_rates(evaluations, found), _conduct(evaluations, found)


def _win_rates(evaluations: Sequence[GameEvaluation], found: Sequence[Figures]) -> Picture:
    titles = {"wolf": "as the wolves", "good": "as the good side", "both": "both sides"}
    figure, axes = panels(len(titles), len(titles), height=3.4)
    opponents = list(dict.fromkeys(name for figures in found for name in figures.opponents))
    for panel, sides in zip(axes, titles, strict=True):
        for number, opponent in enumerate(opponents):
            against = [figures.opponents.get(opponent) for figures in found]
            rates = [
                each and (each.both_sides if sides == "both" else each.by_side[sides]).win_rate for each in against
            ]
            where = zip(_positions(evaluations), rates, strict=True)
            points(panel, where, color_of(number), f"against {opponent}", joined=True)
        panel.axhline(0.5, color=OF_ALL, linewidth=0.6, linestyle=":")
        panel.set_ylim(-0.02, 1.02)
        _finish(panel, titles[sides], evaluations, percent=True)
    legend(figure, axes)
    return picture(figure, "win_rates", "Win rate against each opponent, as the wolves, as the good side, and as both")


def _conduct(evaluations: Sequence[GameEvaluation], found: Sequence[Figures]) -> Picture:
    shown: Mapping[str, Callable[[Figures], Estimate | float | None]] = {
        "strength, log-odds": lambda each: each.strengths and each.strengths.players.get(TRAINED_POLICY),
        "unusable replies": lambda each: each.conduct["both"].invalid_replies,
        "games with a leak": lambda each: each.conduct["both"].games_with_leak,
        "days a game": lambda each: each.conduct["both"].days,
    }
    figure, axes = panels(len(shown), len(shown), height=2.6)
    for panel, (title, of) in zip(axes, shown.items(), strict=True):
        values = [of(figures) for figures in found]
        known = [
            Estimate(value=each, low=each, high=each) if isinstance(each, int | float) else each for each in values
        ]
        points(panel, zip(_positions(evaluations), known, strict=True), color_of(0), "policy", joined=True)
        _finish(panel, title, evaluations, percent=title in ("unusable replies", "games with a leak"))
    return picture(figure, "conduct", "Strength by one fit, and shares of replies and games that break the form")


def _positions(evaluations: Sequence[GameEvaluation]) -> list[int]:
    """Where evaluations stand from left to right: at their policy's version, or, where that says nothing, in a row."""
    versions = [evaluation.header.policy_version for evaluation in evaluations]
    return versions if all(a < b for a, b in pairwise(versions)) else [*range(len(versions))]


def _finish(axes: Axes, title: str, evaluations: Sequence[GameEvaluation], *, percent: bool) -> None:
    where = _positions(evaluations)
    in_a_row = where != [evaluation.header.policy_version for evaluation in evaluations]
    finish(axes, title, percent=percent, below="" if in_a_row else "updates made")
    if in_a_row:
        axes.set_xticks(where, [evaluation.header.label for evaluation in evaluations])


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"
