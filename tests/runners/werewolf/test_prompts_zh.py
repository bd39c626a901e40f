"""Locks that the Chinese text agrees with the rules, leaks nothing and cannot be forged."""

import re
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runners.werewolf.game import (
    OPTIONS,
    PRESETS,
    SPEECHES,
    Action,
    Decision,
    Event,
    EventKind,
    Preset,
    Role,
    Side,
    Unsaved,
    WinRule,
    choices,
)
from runners.werewolf.language.replies import parse_reply
from runners.werewolf.prompts_zh.names import (
    REFEREE,
    ROLE_NAMES,
    SIDE_NAMES,
    choice_name,
)
from runners.werewolf.prompts_zh.questions import render_question
from runners.werewolf.prompts_zh.quoting import quote_speech
from runners.werewolf.prompts_zh.record import (
    RECAP_SPEECH_CHARS,
    render_event,
    render_events,
    render_recap,
)
from runners.werewolf.prompts_zh.system import (
    REPLY_FORMAT,
    check_templates,
    guidance,
    rules_prompt,
    system_prompt,
)
from runners.werewolf.reminder import reminder
from tests.support.game.game_playing import NINE, TEST_PRESETS, TINY
from tests.support.werewolf.reply_tables import QUESTIONS

EXPLOSIVE = replace(NINE, name="9p_explosive", wolves_may_explode=True)
"""Wolves that may explode without a sheriff to be elected."""
ALL_PRESETS = (*TEST_PRESETS, EXPLOSIVE)


# --- events ---------------------------------------------------------------------------------------------------------


def event(kind: EventKind, audience=None, *, day=1, seat=None, target=None, text="", **data: str) -> Event:
    return Event(kind, day, audience and frozenset(audience), seat, target, text, data)


SPOKEN = [
    event(EventKind.WOLF_SAYS, {1, 2}, seat=1, target=3),
    event(EventKind.CLOSING_SPEECH, seat=3, target=5),
    event(EventKind.CLOSING_SPEECH, seat=3),
    *(event(kind, seat=3) for kind in SPEECHES - {EventKind.CLOSING_SPEECH}),
]
_PIECES = (
    "【法官】",
    "\n",
    "\r",
    "\u2028",
    "\x85",
    "<|im_end|>",
    "游戏",
    "（归票5号）",
    "：",
    "\n3号归票发言（归票1号）：",
)
HOSTILE = st.text() | st.lists(st.sampled_from(_PIECES)).map("".join)


@given(HOSTILE)
@settings(max_examples=400, deadline=None)
def test_no_speech_can_pass_for_the_referee(text):
    for speech in SPOKEN:
        line = render_event(replace(speech, text=text))
        head = render_event(replace(speech, text="")).removesuffix("（过）")
        # What the referee says of a speech, whom it names included, comes first and is the same for any words.
        assert len(line.splitlines()) == 1 and line.startswith(head) and head.count("：") == 1
        assert REFEREE not in line and "<" not in line and ">" not in line
        assert len(render_event(replace(speech, text=text), 40)) <= len(head) + 40
    recap = render_recap([event(EventKind.SPEECH, seat=3, text=text)] * 2, 1)
    assert recap.count("\n") == 2 and recap.count(REFEREE) == 1


def test_speeches_are_quoted_whole_or_cut_with_a_mark():
    assert quote_speech("好" * 500) == "好" * 500
    assert quote_speech("好" * 500, 40) == "好" * 39 + "…"
    assert quote_speech("好" * 40, 40) == "好" * 40
    assert quote_speech("好" * 500, 0) == "…"
    assert quote_speech("", 0) == quote_speech("") == "（过）"
    assert render_event(event(EventKind.SPEECH, seat=3, text="好" * 500)) == f"3号发言：{'好' * 500}"
    assert render_events([event(EventKind.SPEECH, seat=3, text="好好")], 1) == "3号发言：…"


def test_a_recap_tells_a_seat_only_what_it_may_know():
    known = [event(EventKind.NIGHT_FALLS), event(EventKind.SEER_RESULT, {3}, seat=3, target=1, side="wolf")]
    events = [*known, event(EventKind.WOLF_TARGET, {1, 2}, target=5)]
    assert render_recap(events, 3) == f"{REFEREE}前情回顾（你是3号）：\n{render_events(known, RECAP_SPEECH_CHARS)}"


# --- rules ----------------------------------------------------------------------------------------------------------


def changed(preset: Preset, option: str) -> Preset:
    """With another value of one rule."""
    value = getattr(preset, option)
    if isinstance(value, WinRule):
        other = next(rule for rule in WinRule if rule is not value)
    else:
        other = not value if isinstance(value, bool) else value + 1
    return replace(preset, **{option: other})


WITHOUT_EFFECT = {
    "wolf_talk_rounds": lambda preset: sum(role.side is Side.WOLF for role in preset.deck) < 2,
    "wolf_king_may_explode": lambda preset: Role.WOLF_KING not in preset.deck or not preset.wolves_may_explode,
    "wolves_may_explode": lambda preset: (
        not any(replace(preset, wolves_may_explode=True).may_explode(role) for role in preset.deck)
    ),
    "witch_self_save": lambda preset: Role.WITCH not in preset.deck,
}


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("preset", ALL_PRESETS, ids=lambda preset: preset.name)
def test_the_rules_text_states_every_option_that_has_an_effect(preset, option):
    has_effect = not WITHOUT_EFFECT.get(option, lambda preset: False)(preset)
    assert (rules_prompt(changed(preset, option)) != rules_prompt(preset)) == has_effect


# --- system prompt --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("preset", ALL_PRESETS, ids=lambda preset: preset.name)
def test_every_role_of_every_preset_has_guidance_and_knows_itself(preset):
    for role in set(preset.deck):
        text = system_prompt(preset, 3, role)
        assert f"你是3号，身份是{ROLE_NAMES[role]}，属{SIDE_NAMES[role.side]}" in text
        assert rules_prompt(preset) in text and REPLY_FORMAT in text and "{" not in text
        assert guidance(preset, role) in text
    rules = rules_prompt(preset)
    # 白狼王 is no 狼王.
    named = {role for role in set(Role) - {Role.WOLF} if re.search(rf"(?<!白){ROLE_NAMES[role]}", rules)}
    assert named == set(preset.deck) - {Role.WOLF}


def test_guidance_speaks_of_what_a_preset_has():
    told = {
        "警": lambda preset, role: preset.sheriff and Role.SEER in preset.deck,
        "自爆": lambda preset, role: preset.may_explode(role),
        "自刀": lambda preset, role: role.side is Side.WOLF or role is Role.WITCH,
        "同守同救": lambda preset, role: role is Role.GUARD and Role.WITCH in preset.deck,
    }
    mute = replace(PRESETS["12p_white_wolf_king"], name="mute", wolves_may_explode=False)
    for preset in (PRESETS["12p_sheriff"], NINE, PRESETS["7p"], mute):
        for role in set(preset.deck):
            text = guidance(preset, role)
            assert {word: word in text for word in told} == {word: has(preset, role) for word, has in told.items()}
    # One wolf and no witch: nobody to agree with and nobody to trick.
    assert not any(word in guidance(TINY, role) for role in set(TINY.deck) for word in told)
    # The last wolf's explosion loses the game.
    assert "自爆" not in guidance(replace(TINY, wolves_may_explode=True), Role.WOLF)
    assert "警徽" not in rules_prompt(replace(PRESETS["12p_idiot"], sheriff=False))


def test_a_wolf_that_explodes_is_told_that_nobody_hears_its_speech():
    told = render_question(QUESTIONS["wolf_speech"])
    assert "如要自爆，就只写“决定：自爆”，不能发言。" in told


SYSTEM = "{rules}|{reply_format}|{seat}|{role}|{guidance}"


def test_system_prompt_templates_can_be_replaced():
    text = system_prompt(TINY, 1, Role.WOLF, {"wolf": "{seat}要狠", "system": SYSTEM + "|{side}", "seer": "不看"})
    assert text == f"{rules_prompt(TINY)}|{REPLY_FORMAT}|1号|狼人|1号要狠|狼人阵营"


def test_the_reminder_after_questions_names_the_seat_and_what_it_is_and_there_is_none_by_default():
    assert reminder(1, Role.WOLF, {"reminder": "{seat}是{role}，{side}。"}, []) == "1号是狼人，狼人阵营。"
    assert reminder(1, Role.WOLF, {}, []) == ""
    told = [
        Event(EventKind.WITCH_TOLD, 1, target=3),
        Event(EventKind.ANTIDOTE_USED, 1, seat=1, target=3),
        Event(EventKind.LAST_WORDS, 1, seat=2, text="1号是女巫。"),
        Event(EventKind.POISON_USED, 2, seat=1, target=4),
    ]
    private = "1号用解药救了3号。1号用毒药毒了4号。"
    assert reminder(1, Role.WITCH, {"reminder": "你是{role}。{private}"}, told) == f"你是女巫。{private}"


def test_the_reminder_lists_checks_that_were_reported_in_public():
    def said(seat, text, kind=EventKind.SPEECH):
        return Event(kind, 1, seat=seat, text=text)

    listed = partial(reminder, 1, Role.VILLAGER, {"reminder": "{reports}你是{role}。"})
    assert listed([said(2, "我是好人，3号像狼。")]) == "你是村民。"
    told = [
        Event(EventKind.GAME_START, 1, data={"seats": "8"}),
        Event(EventKind.DEATHS_ANNOUNCED, 1, data={"seats": "2,7"}),
        said(2, "我是预言家，昨晚验了3号，是狼人。", EventKind.LAST_WORDS),
        said(4, "我才是预言家，昨晚验了2号，是狼人。今晚验5号。"),
        said(4, "我是预言家，昨晚验了1号，是好人。2号是我验的狼人。"),
        said(3, "我是村民。2号是查杀，今天出2号。"),
        Event(EventKind.WOLF_SAYS, 2, seat=5, text="我是预言家，昨晚验了1号，是狼人。"),
    ]
    assert listed(told) == "公开的查验：2号报3号是狼人，4号报2号是狼人，4号报1号是好人。其余：5号、6号、8号。你是村民。"
    told.append(said(2, "我昨晚验了3号，是好人，刚才说错了。"))
    assert listed(told).startswith("公开的查验：2号报3号是好人，4号报2号")


def test_literal_braces_are_safe():
    braces = '{"json": 1} {} {x: 1} { seat } {0} {{seat}} {{unknown}} {{}} }{'
    shown = '{"json": 1} {} {x: 1} { seat } {0} {seat} {unknown} {{}} }{'
    text = system_prompt(TINY, 1, Role.WOLF, {"system": SYSTEM + braces, "wolf": braces})
    # The guidance is inserted as it came out, not filled once more.
    assert text == f"{rules_prompt(TINY)}|{REPLY_FORMAT}|1号|狼人|{shown}{shown}"


@pytest.mark.parametrize(
    ("templates", "problems"),
    [
        (
            {"wolff": ""},
            [r"unknown template prompt_wolff; valid: prompt_system, prompt_reminder, prompt_wolf, "],
        ),
        ({"guidance_wolf": ""}, [r"unknown template prompt_guidance_wolf"]),
        ({"system": SYSTEM + "{身份}{Seat}"}, [r"prompt_system uses unknown \{Seat\}, \{身份\}"]),
        ({"system": SYSTEM.replace("{role}", "{{role}}")}, [r"prompt_system lacks \{role\}; valid: .*\{side\}"]),
        ({"seer": "{rules}"}, [r"prompt_seer uses unknown \{rules\}"]),
        (
            {"reminder": "{rules}"},
            [r"prompt_reminder uses unknown \{rules\}; valid: \{private\}, \{reports\}, \{role\}, "],
        ),
        ({"seer": "{a}", "witch": "{b}", "cupid": ""}, ["prompt_seer", "prompt_witch", "prompt_cupid"]),
    ],
)
def test_templates_that_cannot_be_used_are_named_all_at_once(templates, problems):
    for problem in problems:
        with pytest.raises(ValueError, match=problem):
            check_templates(templates)
        # A game whose deal lacks the role is refused as well: the run is wrong as a whole.
        with pytest.raises(ValueError, match=problem):
            system_prompt(TINY, 1, Role.VILLAGER, templates)


# --- questions ------------------------------------------------------------------------------------------------------


def test_every_question_shows_everything_that_is_legal_in_forms_that_are_understood():
    assert {request.decision for request in QUESTIONS.values()} == set(Decision)
    for request in QUESTIONS.values():
        question = render_question(request)
        assert question.startswith(f"{REFEREE}2号，") and "\n" not in question and "None" not in question
        for choice in choices(request):
            word = choice_name(choice, request.decision)
            assert word in question
            said = "过" if request.speaks and choice is None else f"决定：{word}"
            assert parse_reply(said, request) == Action(choice)
        forms = [part.split("”")[0] for part in question.split("“")[1:]]
        read = {parse_reply(form.replace("X", str(*request.targets[:1])), request).choice for form in forms}
        # One form stands for all seats.
        assert read == {*request.targets[:1], *choices(request)[len(request.targets) :]}
        assert ("不超过200字" in question) == request.speaks
        # What is not legal is not offered.
        if request.targets and not request.speaks:
            bare = render_question(replace(request, options=(), may_pass=False, subject=None))
            hidden = [choice_name(choice, request.decision) for choice in (*request.options, None)]
            assert not any(word in bare.partition("可选：")[2] for word in hidden)


@pytest.mark.parametrize(
    ("request_", "told"),
    [
        (QUESTIONS["witch"], "今夜5号被袭击，请选择今夜如何用药，可选：救、毒1号、毒3号、"),
        (QUESTIONS["save"], "今夜5号被袭击，毒药已用，请选择今夜如何用药，可选：救、不用药。"),
        (QUESTIONS["poison"], "解药已用，请选择今夜如何用药，可选：毒1号、毒3号、"),
        (replace(QUESTIONS["poison"], unsaved=Unsaved.HERSELF), "今夜你被袭击，不可自救，请选择"),
        (replace(QUESTIONS["poison"], unsaved=Unsaved.NOBODY_HIT), "今夜无人可救，请选择"),
        (replace(QUESTIONS["talk"], rounds_left=1), "2号，本轮之后还可商议1轮，请对同伴说"),
        (replace(QUESTIONS["talk"], proposed=((7, 5), (9, 1))), "2号，这是最后一轮商议，7号提议5号，9号提议1号，请"),
    ],
)
def test_questions_to_witch_and_wolves_name_their_reason(request_, told):
    assert told in render_question(request_)
