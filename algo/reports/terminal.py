"""Where tables for people are printed."""

from rich.console import Console

_WIDTH_OF_FILES = 120


def wide_console() -> Console:
    """A console as wide as its terminal; in a file or a pipe, where rich would cut tables at 80 columns, wider."""
    console = Console()
    if not console.is_terminal:
        console.width = max(console.width, _WIDTH_OF_FILES)
    return console
