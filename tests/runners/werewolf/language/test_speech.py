"""Locks the reader of speeches on sentences written by hand (heard_speeches.txt) and on hostile text."""

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
        *(f"保{seat}" for seat in sorted(heard.trusted)),
        *(f"救{seat}" for seat in sorted(heard.saved)),
        *(f"毒{seat}" for seat in sorted(heard.poisoned)),
        *(f"流{seat}" for seat in heard.next_checks),
        *(f"请{seat}投{whom}" for seat, whom in heard.asked),
    ]


def test_what_a_speech_states_is_mostly_understood_and_never_otherwise():
    """Plain ways to say things; what scripted players say is looked up, and understood whole (the test below)."""
    heard = {said.strip(): Counter(as_words(understand(said.strip()))) for said, _ in LINES}
    stated = {said.strip(): Counter(words.split()) for said, words in LINES}
    assert {said: words for said, words in heard.items() if words - stated[said]} == {}
    understood = sum(heard[said].total() for said in heard)
    assert understood >= 0.86 * sum(words.total() for words in stated.values())


@pytest.mark.parametrize("meaning", saying.MEANINGS)
def test_every_sentence_of_scripted_players_is_understood_as_what_it_means(meaning):
    about = dict(
        seat=7, mate=2, other=3, first=5, second=6, night=1, seats="5号、6号", role="女巫", side="狼人", verdict="查杀"
    )
    expected = {
        "accused": Heard(accused=frozenset({7})),
        "split": Heard(accused=frozenset({7}), asked=((2, 3),)),
        "followed": Heard(followed=7),
        "trusted": Heard(trusted=frozenset({7})),
        "seer": Heard(claimed=Role.SEER),
        "claim": Heard(claimed=Role.WITCH),
        "counterclaim": Heard(claimed=Role.WITCH, accused=frozenset({7})),
        "check": Heard(claimed=Role.SEER, reports=((7, Side.WOLF),)),
        "plan": Heard(next_checks=(5, 6)),
        "saved": Heard(claimed=Role.WITCH, saved=frozenset({7})),
        "poisoned": Heard(claimed=Role.WITCH, poisoned=frozenset({7})),
        "prey": Heard(prey=7),
        "poser": Heard(poser=7),
        "nothing": Heard(),
    }
    for template in saying.MEANINGS[meaning]:
        assert understand(template.format(**about)) == expected[meaning], template
        assert meaning in ("prey", "poser") or understand(template.format(**about) * 2) == expected[meaning]


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


WORDS = [*"我是验了查杀金水预言家女巫3号、，。？如果不\n“”\ud800", "12号", "警徽流", "狼人", "三号", "站边"]


@given(st.one_of(st.text(max_size=200), st.lists(st.sampled_from(WORDS), max_size=100).map("".join)))
@settings(max_examples=300, deadline=None)
def test_hostile_text_is_read_without_an_error(text):
    heard = understand(text)
    assert heard.claimed in (None, *(role for role in Role if role.side is Side.GOOD))
    understand_wolf(text, 1)
