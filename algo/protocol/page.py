"""Protocol reports as tables: one web page that needs nothing else, and the same on a terminal."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table as ShownTable

from algo.evaluation.statistics import Estimate
from algo.machine.whole_files import write_whole
from algo.protocol.differences import differences
from algo.protocol.report import AMONG, Among, Figures, ProtocolReport, WinRate
from algo.reports.page_parts import counts_text, estimate_text, page_environment

PAGE_NAME = "protocol.html"
_AMONG_NAMES: Mapping[Among, str] = {"all": "all games", "without_errors": "games without errors"}


@dataclass(frozen=True)
class Table:
    """One table. rows: cells as text, as many as ``head`` has."""

    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def write_page(folder: Path) -> Path:
    """Write the page over all reports in ``folder``; returns its path. Raises ValueError for one that is unreadable."""
    reports = [ProtocolReport.read(path) for path in sorted(folder.glob("*.json"))]
    path = folder / PAGE_NAME
    template = page_environment(Path(__file__).parent).get_template("page.html")
    shown = [
        (report, [*tables_of(report), *_comparisons(report, reports[:number])]) for number, report in enumerate(reports)
    ]
    write_whole(path, template.render(reports=shown))
    return path


def _comparisons(report: ProtocolReport, earlier: Sequence[ProtocolReport]) -> Iterator[Table]:
    """The report less each other of the same terms that stands above it."""
    head = ("figure", "difference: points, scores as they are", "deals of both")
    for other in earlier:
        for among in AMONG if other.digest == report.digest else ():
            rows = [
                (each.what, _signed(each.value, 100 if each.share else 1, 3), str(each.deals))
                for each in differences(report, other, among)
            ]
            if rows:
                caption = f"{report.label} less {other.label}, deal by deal ({_AMONG_NAMES[among]})"
                yield Table(caption, head, tuple(rows))


def show_report(report: ProtocolReport, console: Console) -> None:
    """Print the report as tables."""
    terms = report.terms
    console.print(
        f"{report.label}: protocol {terms.version}, terms {report.digest}, {terms.preset}, seed {terms.seed}; "
        f"{len(report.games)} of {report.planned} games\n{report.power}",
        highlight=False,
        markup=False,
    )
    for table in tables_of(report):
        shown = ShownTable(*table.head, title=table.caption, title_justify="left", box=SIMPLE)
        for row in table.rows:
            shown.add_row(*row)
        console.print(shown)
    for reason, games in report.failures.items():
        console.print(f"{games} games failed: {reason}", style="red", markup=False, highlight=False)


def tables_of(report: ProtocolReport) -> Iterator[Table]:
    """All tables of a report, each for all games and for those without errors; such as would be empty are left out."""
    for among in AMONG:
        figures, name = report.figures[among], _AMONG_NAMES[among]
        for table in (_rates(figures), _strengths(figures), _votes(figures), _deeds(figures), _beliefs(figures),
                      _calibration(figures)):  # fmt: skip
            if table.rows:
                yield Table(f"{table.caption}; {figures.games} games ({name})", table.head, table.rows)


def _rates(figures: Figures) -> Table:
    whole = [(f"side {rate.side} against {rate.against}", *_rate(rate)) for rate in figures.sides]
    single = [(f"single seat, {rate.side}", *_rate(rate)) for rate in figures.seats]
    head = ("policy as", "games won", "the reference in its place", "points between them", "games", "draws")
    return Table("Win rates", head, (*whole, *single))


def _rate(rate: WinRate) -> tuple[str, ...]:
    shares = (estimate_text(rate.rate), estimate_text(rate.reference), _signed(rate.difference, 100))
    return (*shares, str(rate.games), str(rate.draws))


def _strengths(figures: Figures) -> Table:
    fit = figures.strengths
    head = ("player", "overall", "as the wolves", "as the good side")
    if fit is None:
        return Table("Strengths", head, ())
    players = [(name, *(_signed(of[name]) for of in (fit.players, fit.as_wolf, fit.as_good))) for name in fit.players]
    roles = [(f"policy as {role}, beyond its side", _signed(more), "", "") for role, more in fit.roles.items()]
    advantage = ("the good side between equals", _signed(fit.advantage), "", "")
    return Table(f"Strengths in log-odds, {fit.reference} is 0", head, (*players, *roles, advantage))


def _votes(figures: Figures) -> Table:
    head = ("player and side", "votes", "abstained", "name a wolf", "odds of whom they name", "the expert's best odds",
            "by chance", "as the expert", "pivotal", "pivotal ones that name a wolf")  # fmt: skip
    rows = []
    for deeds in figures.deeds:
        votes = deeds.votes
        shares = (votes.on_wolf, votes.odds, votes.expert, votes.chance, votes.as_expert)
        last = (str(votes.pivotal), estimate_text(votes.pivotal_on_wolf))
        counts = (str(votes.cast), str(votes.abstained))
        rows.append((f"{deeds.player}, {deeds.side}", *counts, *map(estimate_text, shares), *last))
    return Table("Votes to exile, against the expert's odds of what was public", head, tuple(rows))


def _deeds(figures: Figures) -> Table:
    rows = []
    for deeds in figures.deeds:
        found = [("kills", deeds.kills), ("checks", deeds.checks)]
        found += [(f"claims of the {role}", counts) for role, counts in deeds.claims.items()]
        found += [(f"checks told by the {role}", counts) for role, counts in deeds.reports.items()]
        who = f"{deeds.player}, {deeds.side}"
        rows += [(who, name, counts_text(counts)) for name, counts in found if counts]
        rows += [(who, f"{role} alive at the end", estimate_text(share)) for role, share in deeds.survival.items()]
    return Table("What seats did", ("player and side", "of", "shares"), tuple(rows))


def _beliefs(figures: Figures) -> Table:
    head = ("good seats of", "answers", "Brier score", "log loss", "AUC", "calibration error", "listened",
            "mass on roles")  # fmt: skip
    rows = []
    for player, report in figures.beliefs.items():
        for name, scores in (
            ("", report.own),
            (": exact odds", report.ceiling),
            (": deaf", report.deaf),
            (": the deck", report.floor),
        ):
            own = name == ""
            rows.append(
                (
                    player + name,
                    str(scores.answers),
                    *(_plain(each) for each in (scores.brier, scores.log_loss, scores.auc)),
                    f"{scores.calibration_error:.3f}",
                    "" if not own or report.listened is None else f"{report.listened:.2f}",
                    "" if not own or report.mass is None else f"{report.mass:.3f}",
                )
            )
    return Table("Beliefs before votes, beside the expert's odds with and without what was said", head, tuple(rows))


def _calibration(figures: Figures) -> Table:
    rows = [
        (player, f"{each.said:.2f}", f"{each.true:.2f}", str(each.seats))
        for player, report in figures.beliefs.items()
        for each in report.own.calibration
    ]
    return Table("Calibration", ("good seats of", "said to be a wolf", "are wolves", "seats"), tuple(rows))


def _plain(value: Estimate | None) -> str:
    return "–" if value is None else f"{value.value:.3f} ({value.low:.3f}–{value.high:.3f})"


def _signed(value: Estimate | None, scale: float = 1.0, digits: int = 2) -> str:
    """ "+1.2 (−0.3 to +2.7)", or a dash. digits: behind the point, where nothing is scaled."""
    if value is None:
        return "–"
    digits = 0 if scale > 1 else digits
    own, low, high = (f"{scale * each:+.{digits}f}" for each in (value.value, value.low, value.high))
    return f"{own} ({low} to {high})"
