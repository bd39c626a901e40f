"""Locks that the Chinese text agrees with the rules, leaks nothing and cannot be forged."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runners.werewolf.game import (
    OPTIONS,
    PRESETS,
    Action,
    BadgeLost,
    Decision,
    Event,
    EventKind,
    Observation,
    Option,
    Phase,
    Preset,
    Request,
    Result,
    Role,
    Side,
    WinRule,
    choices,
)
from runners.werewolf.language.replies import ReplyError, parse_reply
from runners.werewolf.prompts_zh.guidance import GUIDANCE, guidance
from runners.werewolf.prompts_zh.names import (
    OPTION_WORDS,
    REFEREE,
    RESULT_NAMES,
    ROLE_NAMES,
    SIDE_NAMES,
    choice_name,
)
from runners.werewolf.prompts_zh.questions import render_observation, render_question, render_reply_error
from runners.werewolf.prompts_zh.quoting import fill, placeholders, quote_speech
from runners.werewolf.prompts_zh.record import (
    BADGE_LOST_REASONS,
    RECAP_SPEECH_CHARS,
    render_event,
    render_events,
    render_recap,
)
from runners.werewolf.prompts_zh.system import (
    REPLY_FORMAT,
    SYSTEM_TEMPLATES,
    check_templates,
    rules_prompt,
    system_prompt,
)

TWELVE, NINE, SEVEN, TINY = (PRESETS[name] for name in ("12p_sheriff", "9p", "7p", "5p_tiny"))
STRICT = Preset(
    name="7p_strict",
    deck=(Role.WOLF, Role.WOLF_KING, Role.HUNTER, Role.GUARD, Role.VILLAGER, Role.VILLAGER, Role.VILLAGER),
    win_rule=WinRule.PARITY,
    round_limit=2,
    sheriff=True,
    wolf_talk_rounds=0,
    wolves_may_pass=False,
    wolves_may_hit_wolves=False,
    wolves_may_explode=True,
    wolf_king_may_explode=True,
    may_abstain=False,
)
"""What the shipped presets leave out: nobody may pass, the wolves do not talk, the wolf king may explode, no seer."""
EXPLOSIVE = replace(NINE, name="9p_explosive", wolves_may_explode=True)
"""Wolves that may explode without a sheriff to be elected."""
ALL_PRESETS = (*PRESETS.values(), STRICT, EXPLOSIVE)


def test_every_name_is_there():
    assert set(SIDE_NAMES) == set(Side) and set(ROLE_NAMES) == set(Role)
    assert set(RESULT_NAMES) == set(Result)
    assert set(BADGE_LOST_REASONS) == set(BadgeLost) and set(OPTION_WORDS) == set(Option)


# --- events ---------------------------------------------------------------------------------------------------------


def event(kind: EventKind, audience=None, *, day=1, seat=None, target=None, text="", **data: str) -> Event:
    return Event(kind, day, audience and frozenset(audience), seat, target, text, data)


WOLVES = {1, 2}
# Events as the rules log them, all variants of a kind, with the lines that tell of them.
TOLD: list[tuple[Event, str]] = [
    (event(EventKind.GAME_START, seats="12"), "【法官】游戏开始，座位是1号到12号。"),
    (event(EventKind.ROLE_DEALT, {3}, seat=3, role="wolf_king"), "【法官】3号的身份是狼王。"),
    (event(EventKind.WOLF_TEAM, WOLVES, seats="1,2", kings=""), "【法官】狼人是1号、2号。"),
    (event(EventKind.WOLF_TEAM, WOLVES, seats="1,2", kings="2"), "【法官】狼人是1号、2号，其中2号是狼王。"),
    (event(EventKind.NIGHT_FALLS, day=2), "【法官】第2夜，天黑请闭眼。"),
    (event(EventKind.WOLF_SAYS, WOLVES, seat=1, target=3, text="先刀他"), "1号对狼队友说（提议袭击3号）：先刀他"),
    (event(EventKind.WOLF_SAYS, WOLVES, seat=1, text="刀3号"), "1号对狼队友说：刀3号"),
    (event(EventKind.WOLF_VOTE, WOLVES, seat=1, target=3), "【法官】1号选择袭击3号。"),
    (event(EventKind.WOLF_VOTE, WOLVES, seat=1), "【法官】1号选择空刀。"),
    (event(EventKind.WOLF_TARGET, WOLVES, target=3), "【法官】狼人今夜袭击3号。"),
    (event(EventKind.WOLF_TARGET, WOLVES), "【法官】狼人今夜空刀。"),
    (event(EventKind.GUARDED, {3}, seat=3, target=1), "【法官】3号今夜守护1号。"),
    (event(EventKind.GUARDED, {3}, seat=3), "【法官】3号今夜空守。"),
    (event(EventKind.SEER_RESULT, {3}, seat=3, target=1, side="wolf"), "【法官】查验结果：1号是狼人。"),
    (event(EventKind.SEER_RESULT, {3}, seat=3, target=5, side="good"), "【法官】查验结果：5号是好人。"),
    (event(EventKind.WITCH_TOLD, {3}, seat=3, target=5), "【法官】今夜5号被袭击。"),
    (event(EventKind.WITCH_TOLD, {3}, seat=3), "【法官】今夜无人被袭击。"),
    (event(EventKind.ANTIDOTE_USED, {3}, seat=3, target=5), "【法官】3号用解药救了5号。"),
    (event(EventKind.POISON_USED, {3}, seat=3, target=5), "【法官】3号用毒药毒了5号。"),
    (event(EventKind.SHOT_STATUS, {3}, seat=3, may_shoot="yes"), "【法官】你今夜的开枪状态：可以开枪。"),
    (event(EventKind.SHOT_STATUS, {3}, seat=3, may_shoot="no"), "【法官】你今夜的开枪状态：不可以开枪。"),
    (event(EventKind.DAY_BREAKS, day=2), "【法官】第2天，天亮了。"),
    (event(EventKind.SIGNED_UP, seats="3,7"), "【法官】上警的玩家：3号、7号。"),
    (event(EventKind.SIGNED_UP, seats=""), "【法官】无人上警。"),
    (event(EventKind.CAMPAIGN_SPEECH, seat=3, text="投我"), "3号警上发言：投我"),
    (event(EventKind.WITHDREW, seat=3), "【法官】3号退水。"),
    (event(EventKind.SHERIFF_VOTE, seat=1, target=3), "【法官】警长投票：1号投3号。"),
    (event(EventKind.SHERIFF_VOTE, seat=2), "【法官】警长投票：2号弃票。"),
    (event(EventKind.SHERIFF_PK_SPEECH, seat=3, text="再投我"), "3号警长PK发言：再投我"),
    (event(EventKind.SHERIFF_ELECTED, target=3), "【法官】3号当选警长。"),
    (event(EventKind.ELECTION_PUT_OFF), "【法官】警长竞选推迟到明天，届时直接投票。"),
    (event(EventKind.BADGE_LOST, reason="nobody_runs"), "【法官】警徽流失：没有候选人，本局没有警长。"),
    (event(EventKind.BADGE_LOST, reason="no_voters"), "【法官】警徽流失：警下无人，无法投票，本局没有警长。"),
    (event(EventKind.BADGE_LOST, reason="no_votes"), "【法官】警徽流失：全员弃票，本局没有警长。"),
    (event(EventKind.BADGE_LOST, reason="tied_twice"), "【法官】警徽流失：再次平票，本局没有警长。"),
    (event(EventKind.BADGE_LOST, reason="swallowed"), "【法官】警徽流失：双爆吞警徽，本局没有警长。"),
    (event(EventKind.DEATHS_ANNOUNCED, seats="3,5"), "【法官】昨夜3号、5号死亡。"),
    (event(EventKind.DEATHS_ANNOUNCED, seats=""), "【法官】昨夜是平安夜，无人死亡。"),
    (event(EventKind.SHOT, seat=9, target=2), "【法官】9号开枪带走2号。"),
    (event(EventKind.BADGE_PASSED, seat=3, target=5), "【法官】3号把警徽移交给5号。"),
    (event(EventKind.BADGE_TORN, seat=3), "【法官】3号撕毁警徽。"),
    (
        event(EventKind.SPEAKING_ORDER, seat=3, way="sheriff_left", seats="4,5,1,3"),
        "【法官】警长3号选择警左，发言顺序：4号、5号、1号、3号。",
    ),
    (event(EventKind.SPEAKING_ORDER, way="", seats="4,5,1"), "【法官】发言顺序：4号、5号、1号。"),
    (event(EventKind.SPEECH, seat=3, text="我是好人"), "3号发言：我是好人"),
    (event(EventKind.CLOSING_SPEECH, seat=3, target=5, text="都投他"), "3号归票发言（归票5号）：都投他"),
    (event(EventKind.CLOSING_SPEECH, seat=3, target=5), "3号归票发言（归票5号）：（过）"),
    (event(EventKind.CLOSING_SPEECH, seat=3, text="自己看"), "3号归票发言（不归票）：自己看"),
    (event(EventKind.VOTE, seat=3, target=5), "【法官】投票：3号投5号。"),
    (event(EventKind.VOTE, seat=3), "【法官】投票：3号弃票。"),
    (event(EventKind.VOTE_COUNT, count="3:2.5,5:1"), "【法官】计票：3号2.5票，5号1票。"),
    (event(EventKind.VOTE_COUNT, count=""), "【法官】计票：无人得票。"),
    (event(EventKind.VOTE_TIED, seats="1,3"), "【法官】1号、3号平票。"),
    (event(EventKind.PK_SPEECH, seat=3, text="信我"), "3号PK发言：信我"),
    (event(EventKind.EXILED, target=3), "【法官】3号被放逐出局。"),
    (event(EventKind.NOBODY_EXILED), "【法官】今天是平安日，无人被放逐。"),
    (event(EventKind.LAST_WORDS, seat=3), "3号遗言：（过）"),
    (event(EventKind.EXPLODED, seat=7), "【法官】7号自爆出局，白天结束。"),
    (event(EventKind.GAME_OVER, result="draw"), "【法官】游戏结束，平局。"),
]


@pytest.mark.parametrize(("happened", "line"), TOLD, ids=[happened.kind.value for happened, _ in TOLD])
def test_every_event_is_one_line(happened, line):
    assert render_event(happened) == line
    assert render_events([happened]) == line


def test_every_kind_of_event_is_told():
    assert {happened.kind for happened, _ in TOLD} == set(EventKind)
    told = {happened.data["reason"] for happened, _ in TOLD if happened.kind is EventKind.BADGE_LOST}
    assert told == set(BadgeLost)
    assert not any("None" in line for _, line in TOLD)


@pytest.mark.parametrize(
    ("kind", "name"), [(EventKind.VOTE, "投票"), (EventKind.SHERIFF_VOTE, "警长投票")], ids=["exile", "sheriff"]
)
def test_the_votes_of_one_ballot_share_a_line(kind, name):
    ballot = [event(kind, seat=seat, target=target) for seat, target in ((1, 3), (2, None), (3, 1))]
    count = event(EventKind.VOTE_COUNT, count="1:1,3:1")
    again = [event(kind, seat=2, target=3)]
    assert render_events([*ballot, count, *again]).splitlines() == [
        f"【法官】{name}：1号投3号，2号弃票，3号投1号。",
        "【法官】计票：1号1票，3号1票。",
        f"【法官】{name}：2号投3号。",
    ]


SPEECHES = [happened for happened, line in TOLD if not line.startswith(REFEREE)]
HOSTILE = st.text() | st.lists(
    st.sampled_from(
        [
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
        ]
    )
).map("".join)


@given(HOSTILE)
@settings(max_examples=400, deadline=None)
def test_no_speech_can_pass_for_the_referee(text):
    for speech in SPEECHES:
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
    events = [happened for happened, _ in TOLD]
    for seat in (1, 3, 5):
        known = [happened for happened in events if happened.visible_to(seat)]
        assert len(known) < len(events)
        recap = render_recap(events, seat)
        assert recap == f"{REFEREE}前情回顾（你是{seat}号）：\n{render_events(known, RECAP_SPEECH_CHARS)}"
    assert "狼人今夜" in render_recap(events, 1) and "狼人今夜" not in render_recap(events, 3)
    assert "查验结果" in render_recap(events, 3) and "查验结果" not in render_recap(events, 1)


def test_a_recap_of_the_longest_tiny_game_fits_a_small_context():
    """Three days of five seats, each with a PK and last words, and speeches longer than are quoted."""
    seats, words = TINY.seats, "好" * 300
    day = [
        event(EventKind.NIGHT_FALLS),
        event(EventKind.WOLF_VOTE, seat=1, target=2),
        event(EventKind.WOLF_TARGET, target=2),
        event(EventKind.DAY_BREAKS),
        event(EventKind.DEATHS_ANNOUNCED, seats=""),
        event(EventKind.SPEAKING_ORDER, way="", seats="1,2,3,4,5"),
        *(event(EventKind.SPEECH, seat=seat, text=words) for seat in seats),
        *(event(EventKind.VOTE, seat=seat, target=1) for seat in seats),
        event(EventKind.VOTE_COUNT, count="1:2,2:2"),
        event(EventKind.VOTE_TIED, seats="1,2"),
        *(event(EventKind.PK_SPEECH, seat=seat, text=words) for seat in (1, 2)),
        *(event(EventKind.VOTE, seat=seat, target=1) for seat in (3, 4, 5)),
        event(EventKind.VOTE_COUNT, count="1:2,2:1"),
        event(EventKind.EXILED, target=1),
        event(EventKind.LAST_WORDS, seat=1, text=words),
    ]
    assert len(render_recap(day * TINY.round_limit, 1)) < 2000
    assert len(render_recap(day * TINY.round_limit, 1, 0)) < 1200


# --- rules ----------------------------------------------------------------------------------------------------------

CHANGES = {
    "win_rule": lambda preset: next(rule for rule in WinRule if rule is not preset.win_rule),
    "round_limit": lambda preset: preset.round_limit + 1,
    "speech_chars": lambda preset: preset.speech_chars + 1,
    "sheriff": lambda preset: not preset.sheriff,
    "wolf_talk_rounds": lambda preset: preset.wolf_talk_rounds + 1,
    "wolves_may_pass": lambda preset: not preset.wolves_may_pass,
    "wolves_may_hit_wolves": lambda preset: not preset.wolves_may_hit_wolves,
    "wolves_may_explode": lambda preset: not preset.wolves_may_explode,
    "wolf_king_may_explode": lambda preset: not preset.wolf_king_may_explode,
    "witch_self_save": lambda preset: not preset.witch_self_save,
    "may_abstain": lambda preset: not preset.may_abstain,
}
WITHOUT_EFFECT = {
    "wolf_talk_rounds": lambda preset: sum(role.side is Side.WOLF for role in preset.deck) < 2,
    "wolf_king_may_explode": lambda preset: Role.WOLF_KING not in preset.deck or not preset.wolves_may_explode,
    "witch_self_save": lambda preset: Role.WITCH not in preset.deck,
}


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("preset", ALL_PRESETS, ids=lambda preset: preset.name)
def test_the_rules_text_states_every_option_that_has_an_effect(preset, option):
    changed = replace(preset, **{option: CHANGES[option](preset)})
    has_effect = not WITHOUT_EFFECT.get(option, lambda preset: False)(preset)
    assert (rules_prompt(changed) != rules_prompt(preset)) == has_effect


@pytest.mark.parametrize("preset", ALL_PRESETS, ids=lambda preset: preset.name)
def test_the_rules_text_states_the_deck_and_the_limits(preset):
    text = rules_prompt(preset)
    assert f"{len(preset.deck)}人" in text and f"第{preset.round_limit}天" in text
    assert f"不超过{preset.speech_chars}字" in text and "None" not in text
    for role in set(preset.deck):
        assert f"{ROLE_NAMES[role]}{preset.deck.count(role)}名" in text
    assert rules_prompt(replace(preset, deck=(*preset.deck, Role.VILLAGER))) != text
    assert rules_prompt(replace(preset, name="other")) == text


BOUND_TO = {
    **{ROLE_NAMES[role]: lambda preset, role=role: role in preset.deck for role in Role},
    **dict.fromkeys(("解药", "毒药", "不可救自己"), lambda preset: Role.WITCH in preset.deck),
    "空守": lambda preset: Role.GUARD in preset.deck,
    "同守同救": lambda preset: {Role.GUARD, Role.WITCH} <= set(preset.deck),
    **dict.fromkeys(("开枪", "等开枪结束"), lambda preset: any(role.shoots for role in preset.deck)),
    "被毒死": lambda preset: any(role.shoots for role in preset.deck) and Role.WITCH in preset.deck,
    **dict.fromkeys(("警", "上警", "退水", "1.5票", "警左", "死右", "归票", "撕毁"), lambda preset: preset.sheriff),
    "自爆": lambda preset: any(map(preset.may_explode, preset.deck)),
    "双爆": lambda preset: preset.sheriff and any(map(preset.may_explode, preset.deck)),
    "商议": lambda preset: sum(role.side is Side.WOLF for role in preset.deck) > 1 and preset.wolf_talk_rounds > 0,
    "互相知道": lambda preset: sum(role.side is Side.WOLF for role in preset.deck) > 1,
    **dict.fromkeys(("神职", "狼刀在先"), lambda preset: preset.win_rule is WinRule.WIPE_A_KIND),
    "全员弃票": lambda preset: preset.may_abstain,
}


@pytest.mark.parametrize("word", BOUND_TO)
def test_a_rule_is_mentioned_where_it_is_in_force_and_nowhere_else(word):
    for preset in ALL_PRESETS:
        if word == "不可救自己" and preset.witch_self_save:
            continue
        assert (word in rules_prompt(preset)) == BOUND_TO[word](preset), preset.name


def test_the_rules_text_is_short_enough_to_be_read_by_every_seat():
    assert len(rules_prompt(TWELVE)) < 1000 and len(rules_prompt(TINY)) <= 270
    assert len(rules_prompt(NINE)) < 550 and len(rules_prompt(SEVEN)) < 500


def test_the_rules_text_tells_how_wolves_win_and_who_may_explode():
    assert "存活狼人不少于存活好人" in rules_prompt(TINY)
    assert "神职（预言家、女巫）全部出局或村民全部出局" in rules_prompt(SEVEN)
    assert "狼人（狼王不可）" in rules_prompt(TWELVE) and "被毒死则不能" in rules_prompt(TWELVE)
    assert "狼人、狼王白天" in rules_prompt(STRICT) and "，自爆则不能" in rules_prompt(STRICT)
    only_king = replace(TWELVE, deck=(Role.WOLF_KING, Role.VILLAGER, Role.VILLAGER))
    assert "自爆" not in rules_prompt(only_king) and "狼人1名" not in rules_prompt(only_king)


# --- system prompt --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("preset", ALL_PRESETS, ids=lambda preset: preset.name)
def test_every_role_of_every_preset_has_guidance_and_knows_itself(preset):
    for role in set(preset.deck):
        text = system_prompt(preset, 3, role)
        assert f"你是3号，身份是{ROLE_NAMES[role]}，属{SIDE_NAMES[role.side]}" in text
        assert rules_prompt(preset) in text and REPLY_FORMAT in text and "{" not in text
        assert SYSTEM_TEMPLATES[role.value] in text


def test_guidance_speaks_of_what_a_preset_has():
    told = {
        "警": lambda preset, role: preset.sheriff and Role.SEER in preset.deck,
        "警徽流": lambda preset, role: preset.sheriff and role in (Role.SEER, Role.WOLF, Role.WOLF_KING),
        "悍跳": lambda preset, role: role.side is Side.WOLF or (preset.sheriff and role is Role.SEER),
        "倒钩": lambda preset, role: role.side is Side.WOLF,
        "自刀": lambda preset, role: role.side is Side.WOLF or role is Role.WITCH,
        "自爆": lambda preset, role: preset.may_explode(role),
        "同守同救": lambda preset, role: role is Role.GUARD and Role.WITCH in preset.deck,
    }
    for preset in (TWELVE, NINE, SEVEN):
        for role in set(preset.deck):
            for word, expected in told.items():
                assert (word in guidance(preset, role)) == expected(preset, role), (preset.name, role, word)
    # One wolf and no witch: nobody to agree with and nobody to trick.
    assert all(guidance(TINY, role) == GUIDANCE[role] for role in set(TINY.deck))


def test_a_template_for_a_role_replaces_what_the_preset_adds_as_well():
    assert "留警徽流" in system_prompt(TWELVE, 1, Role.SEER)
    assert "留警徽流" not in system_prompt(TWELVE, 1, Role.SEER, {"seer": "少说话。"})


def test_a_check_shows_the_wolf_king_as_a_wolf_and_the_rules_say_so():
    assert "（狼王也显示为狼人）" in rules_prompt(TWELVE) and "显示" not in rules_prompt(NINE)


def test_there_is_a_template_for_the_whole_and_for_each_role():
    assert set(SYSTEM_TEMPLATES) == {"system", *(role.value for role in Role)}
    assert len(set(SYSTEM_TEMPLATES.values())) == len(SYSTEM_TEMPLATES)
    check_templates(SYSTEM_TEMPLATES)


SYSTEM = "{rules}|{reply_format}|{seat}|{role}|{guidance}"


def test_system_prompt_templates_can_be_replaced():
    text = system_prompt(TINY, 1, Role.WOLF, {"wolf": "{seat}要狠", "system": SYSTEM + "|{side}", "seer": "不看"})
    assert text == f"{rules_prompt(TINY)}|{REPLY_FORMAT}|1号|狼人|1号要狠|狼人阵营"


def test_literal_braces_are_safe():
    braces = '{"json": 1} {} {x: 1} { seat } {0} {{seat}} {{unknown}} {{}} }{'
    shown = '{"json": 1} {} {x: 1} { seat } {0} {seat} {unknown} {{}} }{'
    text = system_prompt(TINY, 1, Role.WOLF, {"system": SYSTEM + braces, "wolf": braces})
    # The guidance is inserted as it came out, not filled once more.
    assert text == f"{rules_prompt(TINY)}|{REPLY_FORMAT}|1号|狼人|{shown}{shown}"


@pytest.mark.parametrize(
    ("templates", "problems"),
    [
        ({"wolff": ""}, [r"unknown template prompt_wolff; valid: prompt_system, prompt_wolf, prompt_wolf_king"]),
        ({"guidance_wolf": ""}, [r"unknown template prompt_guidance_wolf"]),
        (
            {"system": SYSTEM + "{sead}"},
            [r"prompt_system uses unknown \{sead\}; valid: \{guidance\}, \{reply_format\}"],
        ),
        ({"system": SYSTEM + "{身份}{Seat}"}, [r"prompt_system uses unknown \{Seat\}, \{身份\}"]),
        ({"system": SYSTEM.replace("{role}", "{{role}}")}, [r"prompt_system lacks \{role\}; valid: .*\{side\}"]),
        ({"system": ""}, [r"lacks \{reply_format\}, \{role\}, \{seat\};"]),
        ({"seer": "{rules}"}, [r"prompt_seer uses unknown \{rules\}; valid: \{role\}, \{seat\}, \{side\}"]),
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


def test_rules_and_guidance_may_be_left_out():
    brief = {"system": "你是{seat}，{role}。{reply_format}"}
    assert system_prompt(TINY, 2, Role.SEER, brief) == f"你是2号，预言家。{REPLY_FORMAT}"


@pytest.mark.parametrize("required", ["reply_format", "seat", "role"])
def test_the_whole_must_hold_what_a_seat_needs(required):
    check_templates({"system": SYSTEM})
    with pytest.raises(ValueError, match=rf"prompt_system lacks \{{{required}\}}"):
        check_templates({"system": SYSTEM.replace(f"{{{required}}}", "")})


def test_fill_works_in_one_pass_and_leaves_other_braces():
    assert fill('{a}{b} {"json": 1} {} {{a}}', a="{b}", b="{{a}}") == '{b}{{a}} {"json": 1} {} {a}'
    assert placeholders('{a}{b_1} {"json": 1} {} {{c}}') == {"a", "b_1"}
    with pytest.raises(ValueError, match=r"unknown \{c\}; known: a, b"):
        fill("{c}", a=1, b=2)


# --- questions ------------------------------------------------------------------------------------------------------


def ask(decision, targets=(), options=(), *, may_pass=True, speech_chars=0, subject=None) -> Request:
    default = Action() if may_pass else Action((*targets, *options)[0])
    return Request(2, decision, 1, Phase.DISCUSSION, targets, options, may_pass, speech_chars, default, subject)


VOTE = ask(Decision.EXILE_VOTE, (1, 3, 4))
EXPLODE = (Option.EXPLODE,)
QUESTIONS = {
    Decision.WOLF_TALK: ask(Decision.WOLF_TALK, (1, 3), speech_chars=80),
    Decision.GUARD: ask(Decision.GUARD, (1, 2)),
    Decision.WOLF_KILL: ask(Decision.WOLF_KILL, (1, 3)),
    Decision.SEER_CHECK: ask(Decision.SEER_CHECK, (1, 3)),
    Decision.WITCH: ask(Decision.WITCH, (1, 3), (Option.SAVE,), subject=3),
    Decision.SIGN_UP: ask(Decision.SIGN_UP, (), (Option.RUN,)),
    Decision.CAMPAIGN_SPEECH: ask(Decision.CAMPAIGN_SPEECH, (), (Option.WITHDRAW, *EXPLODE), speech_chars=80),
    Decision.WITHDRAWAL: ask(Decision.WITHDRAWAL, (), (Option.WITHDRAW, *EXPLODE)),
    Decision.SHERIFF_VOTE: ask(Decision.SHERIFF_VOTE, (1, 3), EXPLODE),
    Decision.SHERIFF_PK_SPEECH: ask(Decision.SHERIFF_PK_SPEECH, (), EXPLODE, speech_chars=80),
    Decision.SHERIFF_PK_VOTE: ask(Decision.SHERIFF_PK_VOTE, (1, 3)),
    Decision.LAST_WORDS: ask(Decision.LAST_WORDS, speech_chars=80),
    Decision.SHOT: ask(Decision.SHOT, (1, 3)),
    Decision.BADGE: ask(Decision.BADGE, (1, 3)),
    Decision.SPEAKING_ORDER: ask(Decision.SPEAKING_ORDER, (), (Option.DEAD_LEFT, Option.DEAD_RIGHT), may_pass=False),
    Decision.SPEECH: ask(Decision.SPEECH, (), EXPLODE, speech_chars=80),
    Decision.CLOSING_SPEECH: ask(Decision.CLOSING_SPEECH, (1, 3), EXPLODE, speech_chars=80),
    Decision.EXILE_VOTE: VOTE,
    Decision.PK_SPEECH: ask(Decision.PK_SPEECH, speech_chars=80),
    Decision.PK_VOTE: ask(Decision.PK_VOTE, (1, 3), EXPLODE),
    Decision.EXPLOSION: ask(Decision.EXPLOSION, (), EXPLODE),
}


@pytest.mark.parametrize("decision", Decision)
def test_every_question_lists_what_is_legal_in_the_parsers_words(decision):
    request = QUESTIONS[decision]
    question = render_question(request)
    assert question.startswith(f"{REFEREE}2号，") and "\n" not in question and "None" not in question
    for choice in choices(request):
        word = choice_name(choice, decision)
        assert word in question
        if request.speaks and choice is None:
            assert parse_reply("过", request) == Action()
        else:
            assert parse_reply(f"决定：{word}", request) == Action(choice)
    assert ("不超过80字" in question and "“过”" in question) == request.speaks


@pytest.mark.parametrize("decision", Decision)
def test_every_form_that_a_question_shows_is_understood(decision):
    request = QUESTIONS[decision]
    forms = [part.split("”")[0] for part in render_question(request).split("“")[1:]]
    assert len(forms) == len(set(forms)) >= 1
    read = {parse_reply(form.replace("X", "1"), request).choice for form in forms}
    # One form stands for all seats.
    assert read == {*request.targets[:1], *choices(request)[len(request.targets) :]}


def test_a_question_offers_only_what_is_legal():
    assert "弃票" in render_question(VOTE) and "自爆" not in render_question(VOTE)
    assert "弃票" not in render_question(replace(VOTE, may_pass=False))
    assert "自爆" not in render_question(replace(QUESTIONS[Decision.SPEECH], options=()))
    assert "退水" not in render_question(replace(QUESTIONS[Decision.CAMPAIGN_SPEECH], options=EXPLODE))
    poison_only = render_question(replace(QUESTIONS[Decision.WITCH], options=(), subject=None))
    assert "救" not in poison_only and "被袭击" not in poison_only and "毒3号" in poison_only
    save_only = render_question(replace(QUESTIONS[Decision.WITCH], targets=()))
    assert "毒" not in save_only and "今夜3号被袭击" in save_only and "“决定：救”" in save_only


def test_a_question_reads_well():
    assert render_question(VOTE) == (
        "【法官】2号，请投票放逐一人，可选：1号、3号、4号、弃票。最后一行写“决定：X号”或“决定：弃票”。"
    )
    assert render_question(QUESTIONS[Decision.SPEECH]) == (
        "【法官】2号，轮到你发言。直接写要说的话，不超过80字；无话可说就写“过”。如要自爆，最后一行写“决定：自爆”。"
    )


@pytest.mark.parametrize(
    ("phase", "subject", "occasion"),
    [
        (Phase.WITHDRAWAL, None, "警上发言结束"),
        (Phase.SHERIFF_VOTE, None, "警长投票即将开始"),
        (Phase.UNOPPOSED, 11, "11号即将直接当选警长"),
        (Phase.SHERIFF_PK_VOTE, None, "警长PK投票即将开始"),
        (Phase.PK_VOTE, None, "PK投票即将开始"),
    ],
)
def test_a_wolf_that_is_asked_whether_it_explodes_is_told_before_what(phase, subject, occasion):
    request = replace(QUESTIONS[Decision.EXPLOSION], phase=phase, subject=subject)
    assert render_question(request) == (
        f"【法官】2号，{occasion}，请决定是否自爆，可选：自爆、不自爆。最后一行写“决定：自爆”或“决定：不自爆”。"
    )


@pytest.mark.parametrize(
    ("left", "right", "whose"),
    [(Option.DEAD_LEFT, Option.DEAD_RIGHT, "昨夜死者"), (Option.SHERIFF_LEFT, Option.SHERIFF_RIGHT, "警长")],
)
def test_the_speaking_order_says_who_starts_and_which_way(left, right, whose):
    question = render_question(replace(QUESTIONS[Decision.SPEAKING_ORDER], options=(left, right)))
    assert f"{OPTION_WORDS[left]}是从{whose}的下一号起递增" in question
    assert f"{OPTION_WORDS[right]}是从{whose}的上一号起递减" in question


def test_the_re_ask_says_what_was_wrong_and_asks_again():
    error = ReplyError("ambiguous")
    assert error.message in render_reply_error(error, VOTE)
    assert render_question(VOTE) in render_reply_error(error, VOTE)


def test_an_observation_is_shown_as_news_and_question():
    news = (event(EventKind.DAY_BREAKS), event(EventKind.SPEECH, seat=3, text="好" * 300))
    observation = Observation(2, Role.SEER, Side.GOOD, 1, Phase.EXILE_VOTE, (1, 2, 3, 4), None, news, VOTE, TINY.deck)
    assert render_observation(observation) == f"{render_events(news)}\n{render_question(VOTE)}"
    assert "好" * 300 in render_observation(observation)
    assert render_observation(replace(observation, request=None)) == render_events(news)
    assert render_observation(replace(observation, events=())) == render_question(VOTE)
