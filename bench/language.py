"""The parsers of Chinese replies and speeches on the tables of their tests."""

from collections import Counter
from pathlib import Path

from rich.console import Group

from bench.tables import table_of
from runners.werewolf.language.speech import understand
from tests.runners.werewolf.language.test_speech import LINES, as_words
from tests.support.werewolf.reply_tables import QUESTIONS, REASK, Row, rows

_TABLES = ("choices.txt", "not_choices.txt", "cut.txt", "speeches.txt", "fresh.txt", "fresh_2.txt")
_VERDICTS = ("right", "acceptable", "rejected", "misread")


def measure(model_folder: Path) -> Group:
    found: dict[str, Counter[str]] = {form: Counter() for form in ("has 决定", "JSON", "prose", "speeches")}
    for table in _TABLES:
        for row in rows(table):
            outcome, (best, *others) = row.outcome(cut=table == "cut.txt"), row.accepted
            verdict = "right" if outcome == best else "rejected" if outcome == REASK else "acceptable"
            found[_form(row)][verdict if outcome in (best, REASK, *others) else "misread"] += 1
    replies = [
        (form, str(counts.total()), *(f"{100 * counts[verdict] / counts.total():.1f} %" for verdict in _VERDICTS))
        for form, counts in found.items()
    ]
    heard, stated = Counter(), Counter()
    for number, (said, words) in enumerate(LINES):
        heard.update((number, word) for word in as_words(understand(said.strip())))
        stated.update((number, word) for word in words.split())
    right = (heard & stated).total()
    speeches = [
        (what, f"{100 * right / of:.1f} %", str(of))
        for what, of in (
            ("parsed facts that are stated", heard.total()),
            ("stated facts that are parsed", stated.total()),
        )
    ]
    return Group(
        table_of("Replies", ("form", "n", *_VERDICTS), replies), table_of("Speeches", ("", "share", "of"), speeches)
    )


def _form(row: Row) -> str:
    if "决定" in row.reply:
        return "has 决定"
    if row.reply.lstrip().startswith(("{", "[", "```")):
        return "JSON"
    return "speeches" if QUESTIONS[row.question].speaks else "prose"
