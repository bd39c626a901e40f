"""An evaluation of the game as sections of a page, and as tables on a terminal."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from algo.evaluation.actions import OF_VOTES
from algo.evaluation.figures import AMONG, Among, Conduct, Figures, Score, differences, figures_of
from algo.evaluation.games import GameEvaluation, GameRow, Sample
from algo.evaluation.page import Page, Section, Table, counts_text, share_text, signed_text, value_text
from algo.evaluation.record import PAGE_FILE, Record
from algo.evaluation.statistics import Estimate, wilson_interval
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
    last, header = evaluations[-1], evaluations[-1].header
    found = [figures_of(evaluation) for evaluation in evaluations]
    comparable = [other for other in evaluations[:-1] if other.header.digest == header.digest]
    sections = [
        Section(header.label, tables=tuple(tables_of(last))),
        Section(
            "All evaluations",
            tables=(_overview(evaluations, found), *(difference_table(last, other) for other in comparable)),
        ),
        Section(f"Sample games, {header.label}", texts=sample_texts(last)),
    ]
    facts = {
        "policy": f"{header.player} {header.model}",
        "panel": f"{header.panel}, terms {header.digest}, seed {header.seed}",
        "games": f"{len(last.rows)} of {sum(header.planned.values())}",
        "what they can show": header.notes,
    }
    return Page(f"Evaluations of {title}", sections, lead=[_LEAD], facts=facts)


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


def tables_of(evaluation: GameEvaluation) -> Iterator[Table]:
    """All tables of one evaluation, for all games and, where it differs, for those without errors."""
    for among in AMONG:
        figures = figures_of(evaluation, among)
        if among != "all" and figures.games in (0, len(evaluation.rows)):
            continue
        suffix = f"; {figures.games} games ({_AMONG_NAMES[among]})"
        for table_of in (
            _win_rates,
            _by_role,
            cell_table,
            _strengths,
            _conduct,
            _votes,
            _actions,
            _beliefs,
            _calibration,
        ):
            table = table_of(figures)
            if table.rows:
                yield Table(table.caption + suffix, table.head, table.rows)
    reasons = dict.fromkeys([*evaluation.failures, *evaluation.retried])
    counts = [(each, str(evaluation.failures.get(each, 0)), str(evaluation.retried.get(each, 0))) for each in reasons]
    yield Table("Failures", ("reason", "games failed", "attempts repeated"), counts)


def _win_rates(figures: Figures) -> Table:
    rows = []

    def add(name: str, score: Score, missing: object = "") -> None:
        beside = (share_text(score.reference), signed_text(score.difference, 100, 0)) if score.reference else ("", "")
        rows.append((name, share_text(score.win_rate), *beside, str(score.games), str(score.draws), str(missing)))

    for opponent, against in figures.opponents.items():
        for side, score in against.by_side.items():
            add(f"{side} against {opponent}", score)
        add(f"both sides against {opponent}", against.both_sides, against.not_finished)
    for side, score in figures.single_seats.items():
        add(f"{side}, in a single seat among mixed players", score)
    head = (
        "policy",
        "games won",
        "the reference in its place",
        "points between them",
        "games",
        "draws",
        "not finished",
    )
    return Table("Win rates", head, rows)


def _by_role(figures: Figures) -> Table:
    head = ("role of the policy's seats", *(f"against {name}" for name in figures.opponents))
    scores = [against.by_role for against in figures.opponents.values()]
    roles = sorted({role for by_role in scores for role in by_role})
    rows = [(role, *(share_text(of[role].win_rate if role in of else None) for of in scores)) for role in roles]
    return Table("Games won, by role", head, rows)


def cell_table(figures: Figures) -> Table:
    """Who beats whom: the share of the games that the wolves (row) won against the good side (column)."""
    rates = {(cell.wolf, cell.good): wilson_interval(cell.wolf_wins, cell.games) for cell in figures.cells}
    players = list(dict.fromkeys(name for pair in rates for name in pair))
    wolves = dict.fromkeys(wolf for wolf, _ in rates)
    rows = [(wolf, *(share_text(rates.get((wolf, good))) for good in players)) for wolf in wolves]
    return Table("Games won by the wolves (row) against the good side (column)", ("wolves", *players), rows)


def _strengths(figures: Figures) -> Table:
    fit = figures.strengths
    if fit is None:
        return Table("Strengths", (), ())
    rows = [(name, *(signed_text(of[name]) for of in (fit.players, fit.as_wolf, fit.as_good))) for name in fit.players]
    rows += [(f"policy as {role}, beyond its side", signed_text(more), "", "") for role, more in fit.roles.items()]
    rows += [("the good side between equals", signed_text(fit.advantage), "", "")]
    head = ("player", "overall", "as the wolves", "as the good side")
    return Table(f"Strengths in log-odds by one fit (Bradley-Terry), {fit.reference} is 0", head, rows)


def _conduct(figures: Figures) -> Table:
    head = (
        "side",
        "replies",
        "unusable",
        "decided by default",
        "games with an identity leak",
        "days",
        "replies a game",
    )
    return Table("Conduct of the policy", head, [_of_side(*item) for item in figures.conduct.items() if item[1].turns])


def _of_side(side: str, conduct: Conduct) -> Sequence[str]:
    shares = (
        share_text(conduct.invalid_replies),
        str(conduct.defaulted_decisions),
        share_text(conduct.games_with_leak),
    )
    return (side, str(conduct.turns), *shares, f"{conduct.days:.1f}", f"{conduct.turns_per_game:.1f}")


def _votes(figures: Figures) -> Table:
    rows = [
        (
            f"{actions.player}, {actions.side}",
            *(share_text(actions.shares.get(what)) for what in OF_VOTES),
            counts_text(votes),
        )
        for actions in figures.actions
        if (votes := actions.counts.get("votes"))
    ]
    head = ("player and side", *OF_VOTES, "all votes")
    return Table("Votes to exile; odds of a wolf are an expert's, of what was public", head, rows)


def _actions(figures: Figures) -> Table:
    rows = []
    for actions in figures.actions:
        told = {what: share_text(share) for what, share in actions.shares.items() if what not in OF_VOTES}
        told |= {what: counts_text(counts) for what, counts in actions.counts.items() if what != "votes"}
        rows += [(f"{actions.player}, {actions.side}", what, text) for what, text in told.items()]
    return Table("What seats did", ("player and side", "", ""), rows)


def _beliefs(figures: Figures) -> Table:
    head = (
        "good seats of",
        "answers",
        "Brier score",
        "log loss",
        "AUC",
        "calibration error",
        "listened",
        "mass on roles",
    )
    rows = []
    for player, report in figures.beliefs.items():
        bounds = {"": report.own, ": exact odds": report.exact, ": deaf": report.deaf, ": the deck": report.deck}
        for name, scores in bounds.items():
            values = (value_text(each) for each in (scores.brier, scores.log_loss, scores.auc))
            own = ("" if name or each is None else f"{each:.3f}" for each in (report.listened, report.mass))
            rows.append((player + name, str(scores.answers), *values, f"{scores.calibration_error:.3f}", *own))
    return Table("Beliefs before votes, beside the expert's odds with and without what was said", head, rows)


def _calibration(figures: Figures) -> Table:
    rows = [
        (player, f"{each.said:.2f}", f"{each.true:.2f}", str(each.seats))
        for player, report in figures.beliefs.items()
        for each in report.own.calibration
    ]
    return Table("Calibration", ("good seats of", "said to be a wolf", "are wolves", "seats"), rows)


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
            signed_text(_strength(figures)),
        )
        for evaluation, figures in zip(evaluations, found, strict=True)
    ]
    return Table("Over all opponents", head, rows)


def difference_table(ours: GameEvaluation, other: GameEvaluation) -> Table:
    """One evaluation less another of the same terms, deal by deal."""
    rows = [
        (each.what, signed_text(each.value, 100, 1) if each.share else signed_text(each.value, 1, 3), str(each.deals))
        for each in differences(ours, other)
    ]
    caption = f"{ours.header.label} less {other.header.label}, deal by deal"
    return Table(caption, ("figure", "difference: points, scores as they are", "deals of both"), rows)


def _strength(figures: Figures) -> Estimate | None:
    return figures.strengths and figures.strengths.players.get(TRAINED_POLICY)
