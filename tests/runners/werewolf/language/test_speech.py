"""Locks the reader of speeches on sentences written by hand (heard_speeches.txt)."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from runners.werewolf.game import Role, Side
from runners.werewolf.language import saying
from runners.werewolf.language.speech import Heard, understand, understand_wolf
from runners.werewolf.prompts_zh.names import ROLE_NAMES

TABLE = Path(__file__).with_name("heard_speeches.txt").read_text(encoding="utf-8")
LINES = [tuple(line.split("→")) for line in TABLE.splitlines() if "→" in line and not line.startswith("#")]


def as_words(heard: Heard) -> list[str]:
    """In the notation of the table, in its order."""
    return [
        *([] if heard.claimed is None else [f"称{ROLE_NAMES[heard.claimed]}"]),
        *(f"{seat}{'狼' if side is Side.WOLF else '好'}" for seat, side in heard.reports),
        *(f"踩{seat}" for seat in sorted(heard.accused)),
        *([] if heard.followed is None else [f"跟{heard.followed}"]),
        *(f"救{seat}" for seat in sorted(heard.saved)),
        *(f"毒{seat}" for seat in sorted(heard.poisoned)),
        *(f"流{seat}" for seat in heard.next_checks),
        *(f"请{seat}投{whom}" for seat, whom in heard.requested_votes),
    ]


def test_what_a_speech_states_is_mostly_understood_and_never_otherwise():
    """Plain ways to say things; what scripted players say is looked up, and understood whole (the test below)."""
    heard = {said.strip(): Counter(as_words(understand(said.strip()))) for said, _ in LINES}
    stated = {said.strip(): Counter(words.split()) for said, words in LINES}
    assert {said: words for said, words in heard.items() if words - stated[said]} == {}
    understood = sum(heard[said].total() for said in heard)
    assert understood >= 0.88 * sum(words.total() for words in stated.values())


def test_emoji_change_no_statement():
    for said, _ in LINES:
        assert understand("👍🏽".join(said)) == understand(said), said
    assert understand("2️⃣号是金水🐺，我是预言家") == understand("2号是金水，我是预言家")


ABOUT = dict(
    accused=7, followed=8, seat=10, checked=1, first=5, second=6, mate=2, other=3, saved=4, poisoned=11,
    prey=12, poser=12, night=1, role="女巫", side="狼人", verdict="查杀",
)  # fmt: skip
STATED = {
    "{accused}": dict(accused=frozenset({7})),
    "{followed}": dict(followed=8),
    "{role}": dict(claimed=Role.WITCH),
    "{checked}": dict(claimed=Role.SEER, reports=((1, Side.WOLF),)),
    "{first}": dict(next_checks=(5,)),
    "{second}": dict(next_checks=(5, 6)),
    "{mate}": dict(requested_votes=((2, 3),)),
    "{saved}": dict(claimed=Role.WITCH, saved=frozenset({4})),
    "{poisoned}": dict(claimed=Role.WITCH, poisoned=frozenset({11})),
    "{prey}": dict(prey=12),
    "{poser}": dict(poser=12),
}


def test_every_sentence_of_scripted_players_is_understood_as_what_it_means():
    for template in sorted(saying.TEMPLATES):
        said = template.format(**ABOUT)
        expected = Heard()
        for slot, stated in STATED.items():
            expected = replace(expected, **stated) if slot in template else expected
        assert understand(said) == expected, template
        assert all(understand(lead + said) == expected for lead in saying.LEADS)
        assert "{pr" in template or "{po" in template or understand(said * 2) == expected


@pytest.mark.parametrize(
    ("said", "prey", "poser"),
    [
        ("建议袭击3号。", 3, None),
        ("今晚刀3号，他像女巫。", 3, None),
        ("先杀5号。", 5, None),
        ("同意刀11号。", 11, None),
        ("我悍跳预言家，刀4号。", 4, 1),
        ("3号悍跳，我倒钩。", None, 3),
        ("让5号去跳预言家。", None, 5),
        ("不要刀3号，刀5号。", 5, None),
        ("别悍跳了。", None, None),
        ("目标2号，不给他们机会。", 2, None),
    ],
)
def test_what_a_wolf_says_by_night(said, prey, poser):
    assert understand_wolf(said, 1) == (prey, poser)
