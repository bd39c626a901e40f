"""Texts of others as a terminal may show them."""


def printable(text: str) -> str:
    """The text with every character replaced that is not shown but obeyed: escape codes, line ends, bidi controls."""
    return (
        text
        if text.isprintable()
        else "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in text)
    )
