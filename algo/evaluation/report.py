"""Evaluations of the game as a page, and as tables for a terminal."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from algo.evaluation.actions import VOTE_SHARES
from algo.evaluation.figures import SUBSETS, Figures, Score, Subset, differences, figures_of
from algo.evaluation.games import GameEvaluation, GameRow, Sample
from algo.evaluation.page import Page, Section, Table, cells, counts_text, share_text, signed_text, value_text
from algo.evaluation.record import PAGE_FILE, Record

_LEAD = (
    "The policy plays held-out deals, which are never trained on. Win rate: wins / games; a draw is no win. In "
    "brackets: 95 % confidence intervals, Wilson's where each deal is played once, else by resampling deals."
)
_SUBSET_NAMES: Mapping[Subset, str] = {"all": "all games", "without_errors": "games without errors"}


def write_page(run_dir: Path) -> Path:
    """Write the page of all evaluations of a run; returns its path."""
    return page_of(run_dir.name, Record(run_dir, GameRow).read()).write(run_dir / PAGE_FILE)


def page_of(title: str, evaluations: Sequence[GameEvaluation]) -> Page:
    """evaluations: in order, at least one; tables and transcripts are of the last."""
    last, header = evaluations[-1], evaluations[-1].header
    overview = []
    for one in evaluations:
        found, of = figures_of(one), one.header
        invalid = found.conduct["both"].invalid_replies
        games = cells(of.player, found.all_games.win_rate, found.all_games.games, one.not_finished, invalid)
        overview.append((of.label, *games, signed_text(found.strength)))
    head = ("evaluation", "policy", "win rate", "games", "not finished", "invalid replies", "strength")
    comparable = [other for other in evaluations[:-1] if other.header.digest == header.digest]
    compared = [Table("Over all opponents", head, overview), *(difference_table(last, other) for other in comparable)]
    samples = [(row.task_id, sample_text(row, row.sample)) for row in last.rows if row.sample is not None]
    facts = {
        "policy": f"{header.player} {header.model}",
        "panel": f"{header.panel}, conditions {header.digest}, seed {header.seed}",
        "games": f"{len(last.rows)} of {sum(header.planned.values())}",
        "detectable differences": header.notes,
    }
    sections = [
        Section(header.label, tables=tuple(tables_of(last))),
        Section("All evaluations", tables=compared),
        Section(f"Sample games, {header.label}", texts=samples),
    ]
    return Page(f"Evaluations of {title}", sections, lead=[_LEAD], facts=facts)


def sample_text(row: GameRow, sample: Sample) -> str:
    """Transcript with thoughts and replies of the policy's seats."""
    text = [sample.transcript]
    for seat in row.seats:
        if seat.reward is not None:
            lines = [f"{seat.seat}号 {seat.role} ({seat.player}), reward {seat.reward:+.2f}"]
            for turn in sample.turns:
                if turn["seat"] == seat.seat:
                    thought = f"{turn['thought']} → " if turn["thought"] else ""
                    error = f" ({turn['error']})" if turn["error"] else ""
                    lines.append(f"  {turn['day']} {turn['decision']}: {thought}{turn['reply']!r}{error}")
            text.append("\n".join(lines))
    return "\n\n".join(text)


# --- tables -----------------------------------------------------------------------------------------------------------


def tables_of(evaluation: GameEvaluation) -> Iterator[Table]:
    """All tables of one evaluation, for all games and, where it differs, for those without errors."""
    for among in SUBSETS:
        figures = figures_of(evaluation, among)
        if among == "all" or figures.games not in (0, len(evaluation.rows)):
            suffix = f"; {figures.games} games ({_SUBSET_NAMES[among]})"
            for table in (*_outcomes(figures), *_actions(figures), *_beliefs(figures)):
                yield replace(table, caption=table.caption + suffix)
    reasons = dict.fromkeys([*evaluation.failures, *evaluation.retried])
    counts = [cells(each, evaluation.failures.get(each, 0), evaluation.retried.get(each, 0)) for each in reasons]
    yield Table("Failures", ("reason", "failed games", "retried attempts"), counts)


def _outcomes(figures: Figures) -> Iterator[Table]:
    scores: list[tuple[str, Score, int | str]] = []
    for opponent, against in figures.opponents.items():
        scores += [(f"{side} against {opponent}", score, "") for side, score in against.by_side.items()]
        scores.append((f"both sides against {opponent}", against.both_sides, against.not_finished))
    scores += [(f"{side}, in a single seat among mixed players", one, "") for side, one in figures.single_seats.items()]
    rows = []
    for where, score, missing in scores:
        compared = (share_text(score.reference), signed_text(score.difference, 100, 0)) if score.reference else ("", "")
        rows.append(cells(where, score.win_rate, *compared, score.games, score.draws, missing))
    reference = ("reference in its place", "difference, points")
    yield Table("Win rates", ("policy", "games won", *reference, "games", "draws", "not finished"), rows)
    yield cell_table(figures)
    if fit := figures.strengths:
        of_sides = {"overall": fit.players, "as the wolves": fit.as_wolf, "as the good side": fit.as_good}
        of_sides = {what: of for what, of in of_sides.items() if of}
        rows = [(name, *(signed_text(of.get(name)) for of in of_sides.values())) for name in fit.players]
        more = {f"policy as {role}, relative to its side": of for role, of in fit.roles.items()}
        more |= {"advantage of the good side": fit.advantage} if fit.advantage else {}
        rows += [(what, signed_text(of), *[""] * (len(of_sides) - 1)) for what, of in more.items()]
        caption = f"Strengths in log-odds by one fit (Bradley-Terry), {fit.reference} is 0"
        yield Table(caption, ("player", *of_sides), rows)
    rows = [
        cells(
            side, of.turns, of.invalid_replies, of.defaulted_decisions, of.games_with_leak, of.days, of.turns_per_game
        )
        for side, of in figures.conduct.items()
        if of.turns
    ]
    head = ("replies", "invalid", "default actions", "games with an identity leak", "days", "replies per game")
    yield Table("Conduct of the policy", ("side", *head), rows)


def _actions(figures: Figures) -> Iterator[Table]:
    votes, others = [], []
    for actions in figures.actions:
        name = f"{actions.player}, {actions.side}"
        if cast := actions.counts.get("votes"):
            votes.append(cells(name, *(actions.shares.get(what) for what in VOTE_SHARES), counts_text(cast)))
        texts = {what: share_text(share) for what, share in actions.shares.items() if what not in VOTE_SHARES}
        texts |= {what: counts_text(counts) for what, counts in actions.counts.items() if what != "votes"}
        others += [(name, what, text) for what, text in texts.items()]
    caption = "Votes to exile; odds of a wolf are the expert's, from public events"
    yield Table(caption, ("player and side", *VOTE_SHARES, "all votes"), votes)
    yield Table("Actions of seats", ("player and side", "", ""), others)


def _beliefs(figures: Figures) -> Iterator[Table]:
    beliefs, bins = [], []
    for player, report in figures.beliefs.items():
        bounds = {
            "": report.own,
            ": exact odds": report.exact,
            ": without speeches": report.deaf,
            ": deck alone": report.deck,
        }
        for name, scores_of in bounds.items():
            values = (value_text(each) for each in (scores_of.brier, scores_of.log_loss, scores_of.auc))
            own = ("" if name or each is None else f"{each:.3f}" for each in (report.listened, report.mass))
            error = f"{scores_of.calibration_error:.3f}"
            beliefs.append((player + name, str(scores_of.answers), *values, error, *own))
        bins += [
            (player, f"{one.predicted:.2f}", f"{one.observed:.2f}", str(one.seats)) for one in report.own.calibration
        ]
    head = (
        "answers",
        "Brier score",
        "log loss",
        "AUC",
        "calibration error",
        "skill: 0 without speeches, 1 exact",
        "P(names of roles)",
    )
    caption = "Beliefs before votes, and the expert's odds with and without speeches"
    yield Table(caption, ("good seats of", *head), beliefs)
    yield Table("Calibration", ("good seats of", "predicted wolf", "observed wolf", "seats"), bins)


def cell_table(figures: Figures) -> Table:
    """Win table: share of the games that the wolves (row) won against the good side (column)."""
    rates = {(cell.wolf, cell.good): cell.rate for cell in figures.cells}
    players = list(dict.fromkeys(name for pair in rates for name in pair))
    wolves = dict.fromkeys(wolf for wolf, _ in rates)
    rows = [(wolf, *(share_text(rates.get((wolf, good))) for good in players)) for wolf in wolves]
    return Table("Games won by the wolves (row) against the good side (column)", ("wolves", *players), rows)


def difference_table(ours: GameEvaluation, other: GameEvaluation) -> Table:
    """One evaluation less another of equal conditions, deal by deal."""
    rows = [
        (each.what, signed_text(each.value, 100, 1) if each.share else signed_text(each.value, 1, 3), str(each.deals))
        for each in differences(ours, other)
    ]
    caption = f"{ours.header.label} minus {other.header.label}, deal by deal"
    return Table(caption, ("figure", "difference (shares in points)", "shared deals"), rows)
