"""The tables of replies: what chooses is understood, what only names a seat is not, and a cut reply is not finished.

``choices``, ``not_choices``, ``cut`` and ``speeches`` were written before the parser, ``fresh`` and ``fresh_2`` after
it, to see what it makes of what it was not made for. ``python -m bench language`` prints how many of each form are read
right, refused and misread.
"""

import random

import pytest

from runners.werewolf.game import Action, Option, legal
from runners.werewolf.language.replies import ReplyError, parse_reply
from tests.support.werewolf.reply_tables import QUESTIONS, REASK, rows

TABLES = ("choices.txt", "not_choices.txt", "cut.txt", "speeches.txt", "fresh.txt", "fresh_2.txt")


@pytest.mark.parametrize("table", TABLES)
def test_every_reply_of_a_table_is_read_as_it_says(table):
    wrong = {row.where: outcome for row in rows(table) if (outcome := _outcome(row, table)) not in row.accepted}
    assert wrong == {}


def _outcome(row, table):
    return row.outcome(cut=table == "cut.txt")


def test_the_tables_are_as_large_as_they_should_be():
    assert sum(1 for _ in rows("choices.txt")) >= 300
    assert sum(REASK in row.accepted for row in rows("not_choices.txt")) >= 150
    assert sum(row.accepted[0] == REASK for row in rows("cut.txt")) >= 40
    assert {row.question for table in TABLES for row in rows(table)} == set(QUESTIONS)


@pytest.mark.parametrize(("table", "share"), [("choices.txt", 0.9), ("fresh.txt", 0.7), ("fresh_2.txt", 0.7)])
def test_what_is_understood_is_not_always_asked_again(table, share):
    """A parser that refused everything would credit nothing, and be of no use."""
    choosing = [row for row in rows(table) if row.accepted[0] != REASK]
    understood = sum(row.outcome() == row.accepted[0] for row in choosing)
    assert understood >= share * len(choosing)


@pytest.mark.parametrize("question", ["vote", "witch", "wolf_vote"])
def test_a_choice_cut_anywhere_is_the_choice_or_none(question):
    """However few tokens a reply gets, it chooses what it would have chosen, or nothing."""
    for row in rows("choices.txt"):
        if row.question != question:
            continue
        request = QUESTIONS[question]
        whole = parse_reply(row.reply, request) if row.outcome() != REASK else None
        for length in range(len(row.reply)):
            try:
                action = parse_reply(row.reply[:length], request, cut=True)
            except ReplyError:
                continue
            assert action == whole, row.reply[:length]


@pytest.mark.parametrize("text", ["我自爆", "我选择自爆", "那就自爆吧", "好吧，我自爆了。", "决定：我要自爆"])
@pytest.mark.parametrize("before", ["", "我是好人。", "思考：被查杀了\n发言：我是好人，"])
def test_a_wolf_never_says_aloud_that_it_explodes(before, text):
    try:
        action = parse_reply(before + text, QUESTIONS["wolf_speech"])
    except ReplyError:
        return
    assert action == Action(Option.EXPLODE)


_PIECES = """决定： 决定 ： 思考： 发言： 2号发言： 投票： 理由： 【思考】 <思考> </think> { } " {"vote": \\boxed{
```json 投 我投 3号 11号 三号 十 3 ， 。 ？ 、 或 不 别 如果 但 5号说 我 选择 将会 自爆 退水 我自爆 救 毒4号 不用药
上警 弃票 撕警徽 因为 ( ) “ ” not no. - — * 😀"""
PIECES = (*_PIECES.split(), "i vote for player 3", " ", "\n", "\x00")


@pytest.mark.endurance
def test_a_hundred_thousand_hostile_replies_give_a_legal_action_or_a_reply_error():
    chance = random.Random(1)
    for _ in range(100_000):
        request = QUESTIONS[chance.choice(sorted(QUESTIONS))]
        text = "".join(chance.choices(PIECES, k=chance.randrange(60)))
        try:
            action = parse_reply(text, request, cut=chance.random() < 0.2)
        except ReplyError:
            continue
        assert legal(request, action), text
        assert not (Option.EXPLODE in request.options and action.text.strip("。！我 ") == "自爆"), text


@pytest.mark.parametrize(
    "piece", ["因为", "我投3号，", "投票：3号\n", "决定：3号\n", "(思考：", '{"vote": ', "\\boxed{3}", "我自爆，"]
)
def test_replies_of_100_000_characters_are_read(piece):
    for question in ("vote", "wolf_speech"):
        _read(piece * (100_000 // len(piece)), QUESTIONS[question])


def _read(text, request):
    try:
        parse_reply(text, request)
    except ReplyError:
        return
