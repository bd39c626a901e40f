"""One self-contained web page for every report: title, verdict, sections of tables, pictures and texts.

Everything on it is escaped, since models write names and replies. The same tables are printed on a terminal.
"""

from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table as ShownTable
from rich.text import Text

from algo.evaluation.statistics import Estimate
from algo.machine.atomic_files import write_atomically

_WIDTH_OF_FILES = 120


@dataclass(frozen=True)
class Table:
    """One table. rows: cells as text, as many as ``head`` has; the first column is text, the others numbers."""

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Picture:
    """A chart."""

    caption: str
    png: bytes

    @property
    def source(self) -> str:
        return f"data:image/png;base64,{b64encode(self.png).decode('ascii')}"


@dataclass(frozen=True)
class Section:
    """A part of the page. lead: paragraphs. texts: (summary, text), unfolded by a click."""

    title: str
    lead: Sequence[str] = ()
    tables: Sequence[Table] = ()
    pictures: Sequence[Picture] = ()
    texts: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True)
class Page:
    """verdict: empty for none. met: whether the criterion is met. facts: name -> text."""

    title: str
    sections: Sequence[Section]
    verdict: str = ""
    met: bool = True
    lead: Sequence[str] = ()
    facts: Mapping[str, str] = field(default_factory=dict)

    def write(self, path: Path) -> Path:
        """Write the page, atomically; returns the path."""
        templates = Environment(
            loader=FileSystemLoader(Path(__file__).parent),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        write_atomically(path, templates.get_template("page.html").render(page=self))
        return path


def show_tables(tables: Iterable[Table], console: Console) -> None:
    """Print the tables that have rows."""
    for table in tables:
        if table.rows:
            shown = ShownTable(title=Text(table.caption), title_justify="left", box=SIMPLE)
            for number, name in enumerate(table.head):
                shown.add_column(Text(name), justify="right" if number else "left", overflow="fold")
            for row in table.rows:
                shown.add_row(*map(Text, row))  # no markup: reasons and names are data
            console.print(shown)


def wide_console() -> Console:
    """A console as wide as its terminal; in a file or a pipe, where rich would cut tables at 80 columns, wider."""
    console = Console()
    if not console.is_terminal:
        console.width = max(console.width, _WIDTH_OF_FILES)
    return console


def cells(*values: Estimate | float | str | None, digits: int = 0) -> tuple[str, ...]:
    """Texts of a row. Estimates are shares; digits: of their per cents."""

    def text(value: Estimate | float | str | None) -> str:
        if value is None or isinstance(value, Estimate):
            return share_text(value, digits)
        return f"{value:.1f}" if isinstance(value, float) else str(value)

    return tuple(map(text, values))


def share_text(estimate: Estimate | None, digits: int = 0) -> str:
    """ "62 % (41–80)", or a dash."""
    return _text(estimate, 100, f".{digits}f", " % ({}–{})")


def value_text(estimate: Estimate | None, digits: int = 3) -> str:
    """ "0.297 (0.241–0.354)", or a dash."""
    return _text(estimate, 1, f".{digits}f", " ({}–{})")


def signed_text(estimate: Estimate | None, scale: float = 1.0, digits: int = 2) -> str:
    """ "+1.2 (−0.3 to +2.7)", or a dash. scale: 100 for shares in points."""
    return _text(estimate, scale, f"+.{digits}f", " ({} to {})")


def _text(estimate: Estimate | None, scale: float, form: str, interval: str) -> str:
    if estimate is None:
        return "–"
    value, *ends = (f"{scale * each:{form}}" for each in (estimate.value, estimate.low, estimate.high))
    return value + interval.format(*ends)


def counts_text(counts: Mapping[str, int]) -> str:
    """ "seer 75 %, villager 25 % of 8"; counts: at least one, none of them 0."""
    total = sum(counts.values())
    return ", ".join(f"{name} {100 * count / total:.0f} %" for name, count in counts.items()) + f" of {total}"
