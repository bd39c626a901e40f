"""Locks how replies are read: never a guess, never a crash, never a choice that nobody made.

``choices``, ``not_choices``, ``cut`` and ``speeches`` were written before the reader, ``fresh`` and ``fresh_2`` after
it, to see what it makes of what it was not made for. ``python -m bench language`` prints how many of each form are read
right, refused and misread.
"""

import re
from dataclasses import replace

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from runners.werewolf.game import Action, Decision, Option, choices, legal
from runners.werewolf.language.lexicon import normal
from runners.werewolf.language.replies import ReplyError, clean_speech, parse_reply, render_reply, split_thought
from runners.werewolf.prompts_zh.names import OPTION_WORDS, PASS_WORDS, REPLY_ERRORS, choice_name
from tests.support.werewolf.reply_tables import QUESTIONS, REASK, rows

TABLES = ("choices.txt", "not_choices.txt", "cut.txt", "speeches.txt", "fresh.txt", "fresh_2.txt")
SILENT = [request for request in QUESTIONS.values() if not request.speaks]


def code_of(text, request):
    with pytest.raises(ReplyError) as caught:
        parse_reply(text, request)
    return caught.value.code


@pytest.mark.parametrize("table", TABLES)
def test_every_reply_of_a_table_is_read_as_it_says(table):
    read = {row.where: (row.outcome(cut=table == "cut.txt"), row.accepted) for row in rows(table)}
    assert {where: outcome for where, (outcome, accepted) in read.items() if outcome not in accepted} == {}
    if table not in ("not_choices.txt", "cut.txt"):  # a reader that refused everything would be of no use
        choosing = [outcome == accepted[0] for outcome, accepted in read.values() if accepted[0] != REASK]
        assert sum(choosing) >= (0.7 if "fresh" in table else 0.9) * len(choosing)


@pytest.mark.parametrize("question", ["vote", "witch", "wolf_vote"])
def test_a_choice_cut_anywhere_is_the_choice_or_none(question):
    """However few tokens a reply gets, it chooses what it would have chosen, or nothing."""
    for row in rows("choices.txt"):
        if row.question != question:
            continue
        whole = parse_reply(row.reply, QUESTIONS[question]) if row.outcome() != REASK else None
        for length in range(len(row.reply)):
            try:
                action = parse_reply(row.reply[:length], QUESTIONS[question], cut=True)
            except ReplyError:
                continue
            assert action == whole, row.reply[:length]


@pytest.mark.parametrize("request_", SILENT, ids=lambda request: request.decision)
def test_what_is_offered_is_understood_by_its_word_and_nothing_else_is(request_):
    offered = {choice_name(choice, request_.decision): choice for choice in choices(request_)}
    for word, choice in offered.items():
        assert parse_reply(f"决定：{word}", request_) == Action(choice)
    assert not request_.targets or code_of(f"决定：{choice_name(99, request_.decision)}", request_) == "illegal_target"
    alike = {PASS_WORDS[Decision.SHOT], PASS_WORDS[Decision.TAKE]}  # to shoot nobody is to take nobody
    unused = alike - offered.keys() if alike & offered.keys() else set()
    for word in {*OPTION_WORDS.values(), *PASS_WORDS.values()} - unused:
        for text in (word, f"决定：{word}"):
            if word in offered:
                assert parse_reply(text, request_) == Action(offered[word])
            else:
                assert code_of(text, request_) in ("illegal_target", "no_choice", "negated")
        # A negated word never chooses what it names.
        for text in (f"决定：没有{word}", f"决定：并非{word}", f"决定：不是{word}", f"我没决定：{word}"):
            assert code_of(text, request_) in ("negated", "no_choice")


def test_who_is_asked_again_is_told_why():
    assert code_of("决定：不投3号", QUESTIONS["vote"]) == "negated"
    assert code_of("答案：3号\n结论：4号", QUESTIONS["vote"]) == "ambiguous"
    assert code_of("今天天气不错", QUESTIONS["vote"]) == "no_choice"


def test_a_spent_potion_cannot_be_used():
    assert code_of("决定：救", QUESTIONS["poison"]) == "illegal_target"
    assert code_of("决定：救3号", QUESTIONS["poison"]) == "no_choice"
    assert code_of("决定：毒5号", QUESTIONS["save"]) == "illegal_target"


@pytest.mark.parametrize("question", ["speech", "wolf_campaign", "closing", "talk", "last_words"])
@pytest.mark.parametrize("text", ["", "  ", "<think>", "<think>我是狼", "发言：", "。。", "……", "？——", "～、·"])
def test_an_empty_speech_is_an_error(question, text):
    assert code_of(text, QUESTIONS[question]) == "empty"


def test_a_speech_is_cut_to_what_the_request_allows():
    short = replace(QUESTIONS["closing"], speech_chars=2)
    assert parse_reply("一二三四\n决定：3号", short) == Action(3, "一二")
    assert clean_speech("<|im_end|>", 20) == "＜|im_end|＞"


@pytest.mark.parametrize(
    ("speech", "heard"),
    [
        ("我是好人。今天出3号。我怀疑9号全是假话", "我是好人。今天出3号。"),
        ("我是好人。今天先出3号。我怀疑9号", "我是好人。今天先出3号。"),  # as long as is heard
        ("4号说“我是狼。”所以我投4号", "4号说“我是狼。”"),
        ("我信3号!Vote 5. Then 6 and 7", "我信3号!Vote 5."),
        ("我是一个好人，大家今天一起投3号", "我是一个好人，"),  # no sentence fits: its clauses that do
        ("我是一个好人大家今天一起投3号", "我是一个好人大家今天一起"),
        ("今天出3号，因为他一直划水", "今天出3号，"),
    ],
)
def test_a_speech_that_is_too_long_ends_with_a_sentence(speech, heard):
    assert clean_speech(speech, 12 if "Vote" not in speech else 16) == heard


@pytest.mark.parametrize("text", ["我自爆", "我选择自爆", "那就自爆吧", "好吧，我自爆了。", "决定：我要自爆"])
@pytest.mark.parametrize("before", ["", "我是好人。", "思考：被查杀了\n发言：我是好人，"])
def test_a_wolf_never_says_aloud_that_it_explodes(before, text):
    try:
        action = parse_reply(before + text, QUESTIONS["wolf_speech"])
    except ReplyError:
        return
    assert action == Action(Option.EXPLODE)


@pytest.mark.parametrize(
    ("text", "thought", "reply"),
    [
        ("<think>想</think>说", "想", "说"),
        ("想</think>说", "想", "说"),
        ("<think>想", "想", ""),
        ("<think>\n\n</think>\n\n说", "", "说"),
        ("<think>一</think>中<think>二</think>说", "一</think>中二", "说"),
        ("说<think>想", "想", "说"),
    ],
)
def test_thoughts_are_split_off(text, thought, reply):
    assert split_thought(text) == (thought, reply)


# --- any text -------------------------------------------------------------------------------------------------------

_PIECES = """决定： 决定 ： 思考： 发言： 2号发言： 投票： 理由： 【思考】 <思考> <think> </think> { } " {"vote":
\\boxed{ %s ```json 投 我投 毒3号 查验 3号 11号 三号 十 3 ， 。 ？ 、 或 不 别 如果 但 5号说 我 选择 将会 自爆 退水
我自爆 救 毒4号 不用药 上警 弃票 撕警徽 因为 ( ) “ ” not no. - — * 😀 ﹕ １ 【 】 没 过"""
PIECES = [*_PIECES.split(), *OPTION_WORDS.values(), *PASS_WORDS.values(), "\n决定：", "i vote for player 3"]
PIECES += [*" \n\u200b\x00\u2028\ud800"]
SAID = {Option.EXPLODE: "自[爆曝]|explode|destruct", Option.WITHDRAW: "退|withdraw"}
LIKE_A_LABEL = re.compile(r"决定|(?:发言|理由|思考|投票)\W*[:：﹕]|[^\w\s]\s*(?:发言|理由|思考|投票)\s*[^\w\s]")
HOSTILE = st.one_of(
    st.text(), st.text(st.characters()), st.lists(st.sampled_from(PIECES) | st.text(max_size=3)).map("".join)
)
ANY_QUESTION = st.sampled_from(sorted(QUESTIONS)).map(QUESTIONS.__getitem__)


@example(QUESTIONS["wolf_speech"], "\x1b自爆")
@example(QUESTIONS["explosion"], "自曝")
@given(ANY_QUESTION, HOSTILE)
@settings(max_examples=800, deadline=None)
def test_any_text_gives_a_legal_action_or_a_reply_error(request_, text):
    try:
        action = parse_reply(text, request_)
    except ReplyError as error:
        assert error.code in REPLY_ERRORS and error.message == REPLY_ERRORS[error.code]
        return
    assert legal(request_, action)
    # What was understood can be said again, and means the same.
    unclear = LIKE_A_LABEL.search(action.text) or re.search("自[爆曝]|退[水选警]", action.text)  # see render_reply
    assert unclear or parse_reply(render_reply(action, request_), request_) == action
    action.text.encode()
    assert len(action.text.splitlines()) <= 1 and len(action.text) <= request_.speech_chars
    assert clean_speech(action.text, request_.speech_chars) == action.text
    if action.choice in SAID:
        assert re.search(SAID[action.choice], normal(text))


@given(ANY_QUESTION, HOSTILE, st.integers(1, 200), st.data())
@example(QUESTIONS["speech"], "```json 我是好人", 200, None)
@example(QUESTIONS["speech"], '发言：{"', 200, None)
@settings(max_examples=400, deadline=None)
def test_every_legal_action_survives_the_round_trip(request_, text, speech_chars, data):
    assume("自爆" not in text and "退水" not in text)  # said aloud it is the option, or asked about again
    choice = data.draw(st.sampled_from(choices(request_))) if data else None
    speech = clean_speech(text, speech_chars) if request_.speaks else ""
    assert clean_speech(speech, speech_chars) == speech and len(speech) <= speech_chars
    assume(not LIKE_A_LABEL.search(speech))  # see render_reply
    action = Action(choice, "" if choice is Option.EXPLODE else speech)
    assert legal(request_, action)
    assert parse_reply(render_reply(action, request_), request_) == action


@pytest.mark.parametrize("question", ["vote", "wolf_speech"])
@pytest.mark.parametrize(
    "piece",
    ["因为", "我投3号，", "投票：3号\n", "决定：3号\n", "(思考：", '{"vote": ', "\\boxed{3}", "我自爆，", "\n", "*\n"],
)
def test_replies_of_100_000_characters_are_read(piece, question):
    try:
        parse_reply(f"好{piece * (100_000 // len(piece))}好", QUESTIONS[question])
    except ReplyError:
        return
