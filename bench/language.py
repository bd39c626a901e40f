"""The readers of Chinese on the tables of their tests: replies, speeches, leaks; and how long hostile text takes."""

import time
from collections import Counter

from rich.box import SIMPLE
from rich.console import Group
from rich.table import Table

from runners.werewolf.language.leaks import gives_wolves_away
from runners.werewolf.language.speech import understand
from tests.runners.werewolf.language.test_leaks import MATES
from tests.runners.werewolf.language.test_speech import LINES, as_words
from tests.support.werewolf.reply_tables import FOLDER, QUESTIONS, REASK, Row, rows

_TABLES = ("choices.txt", "not_choices.txt", "cut.txt", "speeches.txt", "fresh.txt", "fresh_2.txt")
_FORMS = ("has 决定", "JSON", "prose", "speeches")
_PIECES = (
    "我投3号，",
    "投票：3号\n",
    "决定：3号\n",
    "(思考：",
    '{"vote": ',
    "\\boxed{3}",
    "我自爆，",
    "3",
    "一",
    "【",
    "} ",
)
_LONG = 100_000


def measure() -> Group:
    """The tables."""
    return Group(_replies(), _others(), _time())


def _replies() -> Table:
    found: dict[str, Counter[str]] = {form: Counter() for form in _FORMS}
    for table in _TABLES:
        for row in rows(table):
            outcome, (best, *others) = row.outcome(cut=table == "cut.txt"), row.accepted
            verdict = "right" if outcome == best else "refused" if outcome == REASK else "acceptable"
            found[_form(row)][verdict if outcome in (best, REASK, *others) else "misread"] += 1
    table = Table("replies", "n", "right", "acceptable", "refused", "misread", "good", box=SIMPLE)
    for form in _FORMS:
        counts = [found[form][verdict] for verdict in ("right", "acceptable", "refused", "misread")]
        table.add_row(form, str(sum(counts)), *map(str, counts), f"{100 * sum(counts[:2]) / sum(counts):.1f} %")
    return table


def _form(row: Row) -> str:
    if "决定" in row.reply:
        return "has 决定"
    if row.reply.lstrip().startswith(("{", "[", "```")):
        return "JSON"
    return "speeches" if QUESTIONS[row.question].speaks else "prose"


def _others() -> Table:
    heard, stated = Counter(), Counter()
    for number, (said, words) in enumerate(LINES):
        heard.update((number, word) for word in as_words(understand(said.strip())))
        stated.update((number, word) for word in words.split())
    both = (heard & stated).total()
    leaks = Counter()
    for line in (FOLDER / "leaks.txt").read_text(encoding="utf-8").splitlines():
        if line[:2] in ("+ ", "? ", "- "):
            leaks[line[0] == "-", gives_wolves_away(line[2:], MATES)] += 1
    table = Table("reader", "share", "of", box=SIMPLE)
    table.add_row("speeches: what is read is stated", f"{100 * both / heard.total():.1f} %", str(heard.total()))
    table.add_row("speeches: what is stated is read", f"{100 * both / stated.total():.1f} %", str(stated.total()))
    for clean, name in ((False, "leaks: found (a lower bound)"), (True, "leaks: false alarms")):
        of = leaks[clean, True] + leaks[clean, False]
        table.add_row(name, f"{100 * leaks[clean, True] / of:.1f} %", str(of))
    return table


def _time() -> Table:
    table = Table(f"{_LONG:,} characters of", "slowest question", "ms", box=SIMPLE)
    for piece in _PIECES:
        taken = {}
        for question in QUESTIONS:
            row = Row("", question, piece * (_LONG // len(piece)), ())
            started = time.process_time()
            row.outcome()
            taken[question] = time.process_time() - started
        slowest = max(taken, key=taken.__getitem__)
        table.add_row(repr(piece), slowest, f"{1000 * taken[slowest]:.0f}")
    return table
