"""Tables of figures."""

from collections.abc import Iterable, Sequence

from rich.table import Table


def table_of(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """The first column is text, all others are figures."""
    table = Table(title=title, title_justify="left")
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left")
    for row in rows:
        table.add_row(*row)
    return table


def ratio_rows(figures: Iterable[tuple[str, float, float]], form: str = ".3f", ratio: str = ".3f") -> list[list[str]]:
    """figures: (name, ours, other); the last column is ours / other."""
    return [[what, f"{ours:{form}}", f"{other:{form}}", f"{ours / other:{ratio}}"] for what, ours, other in figures]
