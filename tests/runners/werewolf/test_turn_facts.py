"""What is measured of a reply: one table for each fact, and any text whatsoever."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runners.policy.model import SampledTurn
from runners.werewolf.game import Decision, Option, Role, Side
from runners.werewolf.language.leaks import prompt_runs
from runners.werewolf.language.replies import ReplyError, parse_reply
from runners.werewolf.language.speech import understand, understand_wolf
from runners.werewolf.players import ModelTurn
from runners.werewolf.turn_facts import (
    Speaker,
    chinese_share,
    repetition,
    repetition_of,
    turn_facts,
)
from store.werewolf import NEUTRAL_FACTS, TURN_FACTS
from tests.support.werewolf.reply_tables import ask

PROMPT = "你在玩狼人杀。夜里优先除掉能找出狼人的人，如预言家。让好人互相怀疑，投票时不要露出破绽。"
WOLF = Speaker(Side.WOLF, frozenset({3}), prompt_runs(PROMPT))
GOOD = Speaker(Side.GOOD, frozenset(), prompt_runs(PROMPT))


def request(decision=Decision.SPEECH, speech_chars=20, targets=(), options=()):
    return ask(decision, targets, options, chars=speech_chars)


def turn(reply, error=None, is_reask=False, finish_reason="stop"):
    sampled = SampledTurn(0, 0, "", (1,), (2,), (-0.1,), finish_reason, 0.0, 0.0)
    return ModelTurn(sampled, is_reask, reply, "", error)


def facts_of(reply, asked=None, speaker=GOOD, earlier=(), **changes):
    asked = asked or request()
    return turn_facts(turn(reply, **changes), asked, parse_reply(reply, asked).text, speaker, earlier)


def test_a_reply_that_cannot_be_used_has_no_facts_of_speech():
    found = turn_facts(turn("hello hello hello", "no_choice", True, "length"), request(), "", GOOD, ())
    assert found == {**NEUTRAL_FACTS, "invalid": 1.0, "reask": 1.0, "cut": 1.0}


@pytest.mark.parametrize(
    ("decision", "speaker", "chosen", "fact"),
    [
        (Decision.EXILE_VOTE, GOOD, Side.WOLF, "vote_against_enemy"),
        (Decision.PK_VOTE, WOLF, Side.GOOD, "vote_against_enemy"),
        (Decision.EXILE_VOTE, GOOD, Side.GOOD, None),
        (Decision.EXILE_VOTE, GOOD, None, None),
        (Decision.SEER_CHECK, GOOD, Side.WOLF, None),
        (Decision.WOLF_KILL, WOLF, Side.GOOD, "attack_on_enemy"),
        (Decision.WOLF_TALK, WOLF, Side.GOOD, "attack_on_enemy"),
        (Decision.WOLF_TALK, WOLF, Side.WOLF, None),
        (Decision.WITCH, GOOD, Side.WOLF, "attack_on_enemy"),
        (Decision.SHOT, GOOD, Side.GOOD, None),
    ],
)
def test_votes_and_attacks_count_by_the_side_that_they_are_aimed_at(decision, speaker, chosen, fact):
    asked = request(decision, speech_chars=0, targets=(3, 4))
    found = turn_facts(turn("I vote. 决定：3号"), asked, "", speaker, (), chosen)
    assert found == NEUTRAL_FACTS | ({} if fact is None else {fact: 1.0})


def test_silence_and_explosions_are_neutral():
    assert facts_of("过") == NEUTRAL_FACTS
    assert facts_of("我是狼人 bye\n决定：自爆", request(options=(Option.EXPLODE,)), WOLF) == NEUTRAL_FACTS


def test_length_is_that_of_the_reply_not_of_the_shortened_speech():
    reply = "好" * 10 + "人" * 15
    found = facts_of(reply)
    assert (found["speech_chars"], found["overlong"]) == (25, 1)
    assert parse_reply(reply, request()).text == reply[:20]
    assert facts_of(reply[:20])["overlong"] == 0
    # What nobody heard is measured, too, but cannot give anything away.
    assert facts_of("大家好，" * 5 + "hello")["chinese_share"] == 15 / 20
    assert facts_of("大家好啊，" * 4 + "我是狼人。", speaker=WOLF)["identity_leak"] == 0


@pytest.mark.parametrize(
    ("text", "share"),
    [
        ("我是好人。", 1.0), ("", 1.0), ("12345！？", 1.0), ("……", 1.0), ("hello", 0.0), ("我是 ok", 0.5),
        ("3号PK", 1 / 3), ("ひらがな", 0.0), ("漢字かな", 0.5), ("한국어", 0.0), ("𠮷野家", 1.0), ("二〇二六", 1.0),
        ("Ａ我", 0.5), ("😀", 1.0), ("да нет", 0.0), ("㐂", 1.0),
    ],
)  # fmt: skip
def test_share_of_chinese_letters(text, share):
    assert chinese_share(text) == pytest.approx(share)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0), ("我是", 0), ("我是好人", 0), ("一二三四五六七八", 0),
        ("哈哈哈哈哈", 1 / 2), ("哈" * 103, 0.99),  # 100 runs, one of them distinct
        ("我是好人我是好人", 1 / 5), ("我是好人，我是好人！", 1 / 5),  # 5 runs: 我是好人 twice
        ("我怀疑3号，他的发言前后矛盾。我听了5号的查验，觉得可信，今天先出3号。", 0),
    ],
)  # fmt: skip
def test_repetition_within_a_speech(text, expected):
    assert repetition(text) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("text", "earlier", "expected"),
    [
        ("我是好人", [], 0), ("我是好人", ["我是好人。"], 1), ("我是好人", ["我是", "好人"], 0), ("", ["我是好人"], 0),
        ("我是好人一二三四", ["我是好人"], 1 / 5), ("我是好人我是好人", ["我，是，好，人"], 2 / 5),
        ("一二三四五", ["x一二三四", "二三四五x"], 1),
    ],
)  # fmt: skip
def test_repetition_of_earlier_speeches(text, earlier, expected):
    assert repetition_of(text, earlier) == pytest.approx(expected)


@pytest.mark.parametrize("decision", [d for d in Decision if "speech" in d or d in ("last_words", "wolf_talk")])
def test_only_a_wolf_gives_the_wolves_away_and_whoever_prints_the_prompt_and_only_in_public(decision):
    said = {
        ("我的同伴是3号。", WOLF): 1,
        ("我是狼人。", GOOD): 0,
        ("我是预言家，3号是狼人。", WOLF): 0,
        ("夜里优先除掉能找出狼人的人，如预言家", GOOD): 1,
        ("夜里要优先找出狼人", WOLF): 0,
    }
    asked = request(decision)
    leaks = {key: facts_of(key[0], asked, key[1])["identity_leak"] for key in said}
    assert leaks == (said if asked.is_public else dict.fromkeys(said, 0))


_WORDS = "<think> </think> hello 查验 金水 预言家 𠮷 ﷺ"
WORDS = [*"决定：发言过自爆我是狼人同伴3号\n\x00 <>【】“”\ud800", *_WORDS.split()]
TEXTS = st.one_of(st.text(max_size=200), st.lists(st.sampled_from(WORDS), max_size=80).map("".join))


@given(TEXTS, st.lists(TEXTS, max_size=3), st.sampled_from([0, 1, 3, 20, 200]), st.booleans())
@settings(max_examples=300, deadline=None)
def test_hostile_text_never_raises_and_facts_stay_in_range(reply, earlier, speech_chars, closes):
    asked = request(
        Decision.CLOSING_SPEECH if closes else Decision.SPEECH, speech_chars, targets=(3,) if closes else ()
    )
    try:
        heard, error = parse_reply(reply, asked).text, None
    except ReplyError as problem:
        heard, error = "", problem.code
    assert understand(reply).claimed in (None, *(role for role in Role if role.side is Side.GOOD))
    understand_wolf(reply, 1)
    found = turn_facts(turn(reply, error), asked, heard, WOLF, earlier)
    assert set(found) == set(TURN_FACTS)
    assert all(0.0 <= value <= TURN_FACTS[name].highest for name, value in found.items())
