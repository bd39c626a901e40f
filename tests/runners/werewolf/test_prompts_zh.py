"""Locks that the Chinese text agrees with the rules, leaks nothing and cannot be forged."""

from dataclasses import replace

import pytest
from game_playing import SEVEN, STRICT, TEST_PRESETS, TINY, play_brains, play_random
from hypothesis import given, settings
from hypothesis import strategies as st

from runners.werewolf.brains import ScriptedBrain
from runners.werewolf.game import (
    PRESETS,
    Action,
    Decision,
    Event,
    EventKind,
    Phase,
    Request,
    Result,
    Role,
    Side,
    WinRule,
    choices,
    new_game,
    observe,
    pending,
    winner,
)
from runners.werewolf.prompts_zh import (
    ACCUSATION,
    CHECK_CLAIM,
    KILL_PROPOSAL,
    MAX_SPEECH_CHARS,
    PHASE_NAMES,
    REFEREE,
    RESULT_NAMES,
    ROLE_NAMES,
    SIDE_NAMES,
    SYSTEM_TEMPLATES,
    choice_name,
    fill,
    quote_speech,
    render_event,
    render_events,
    render_observation,
    render_question,
    render_recap,
    render_reply_error,
    rules_prompt,
    say_accusation,
    say_following,
    say_kill_proposal,
    say_seer_claim,
    system_prompt,
)
from runners.werewolf.replies import ReplyError
from runners.werewolf.transcript import render_transcript

# One event of every kind, as the rules would log it.
SAMPLES = {
    EventKind.GAME_START: Event(EventKind.GAME_START, 1, data={"seats": "5"}),
    EventKind.ROLE_DEALT: Event(EventKind.ROLE_DEALT, 1, frozenset({3}), seat=3, data={"role": "seer"}),
    EventKind.WOLF_TEAM: Event(EventKind.WOLF_TEAM, 1, frozenset({1, 2}), data={"seats": "1,2"}),
    EventKind.NIGHT_FALLS: Event(EventKind.NIGHT_FALLS, 2),
    EventKind.WOLF_SAYS: Event(EventKind.WOLF_SAYS, 1, frozenset({1, 2}), seat=1, text="刀3号"),
    EventKind.WOLF_VOTE: Event(EventKind.WOLF_VOTE, 1, frozenset({1, 2}), seat=1, target=None),
    EventKind.WOLF_TARGET: Event(EventKind.WOLF_TARGET, 1, frozenset({1, 2}), target=3),
    EventKind.SEER_RESULT: Event(EventKind.SEER_RESULT, 1, frozenset({3}), seat=3, target=1, data={"side": "wolf"}),
    EventKind.DAY_BREAKS: Event(EventKind.DAY_BREAKS, 2),
    EventKind.DEATHS_ANNOUNCED: Event(EventKind.DEATHS_ANNOUNCED, 1, data={"seats": ""}),
    EventKind.SPEECH: Event(EventKind.SPEECH, 1, seat=3, text="我是好人"),
    EventKind.PK_SPEECH: Event(EventKind.PK_SPEECH, 1, seat=3, text="信我"),
    EventKind.LAST_WORDS: Event(EventKind.LAST_WORDS, 1, seat=3, text=""),
    EventKind.VOTE: Event(EventKind.VOTE, 1, seat=3, target=None),
    EventKind.VOTE_TIED: Event(EventKind.VOTE_TIED, 1, data={"seats": "1,3"}),
    EventKind.EXILED: Event(EventKind.EXILED, 1, target=3),
    EventKind.NOBODY_EXILED: Event(EventKind.NOBODY_EXILED, 1),
    EventKind.GAME_OVER: Event(EventKind.GAME_OVER, 1, data={"result": "draw"}),
}


def test_every_name_is_there():
    assert set(SIDE_NAMES) == set(Side) and set(ROLE_NAMES) == set(Role)
    assert set(PHASE_NAMES) == set(Phase) and set(RESULT_NAMES) == set(Result)


@pytest.mark.parametrize("kind", EventKind)
def test_every_event_is_one_sentence_on_one_line(kind):
    line = render_event(SAMPLES[kind])
    assert line and "\n" not in line and "None" not in line
    assert line.startswith((REFEREE, "1号", "3号"))


def test_sentences():
    assert render_event(SAMPLES[EventKind.SPEECH]) == "3号发言：我是好人"
    assert render_event(SAMPLES[EventKind.LAST_WORDS]) == "3号遗言：（过）"
    assert render_event(SAMPLES[EventKind.DEATHS_ANNOUNCED]) == "【裁判】昨夜是平安夜，无人死亡。"
    assert render_event(SAMPLES[EventKind.VOTE_TIED]) == "【裁判】1号、3号平票。"
    assert render_event(SAMPLES[EventKind.WOLF_VOTE]) == "【裁判】1号选择空刀。"
    assert render_event(SAMPLES[EventKind.SEER_RESULT]) == "【裁判】查验结果：1号是狼人。"


def test_the_votes_of_one_ballot_share_a_line():
    votes = [Event(EventKind.VOTE, 1, seat=seat, target=target) for seat, target in ((1, 3), (2, None))]
    assert (
        render_events([*votes, SAMPLES[EventKind.EXILED]])
        == "【裁判】投票：1号投3号，2号弃票。\n【裁判】3号被放逐出局。"
    )


@given(
    st.text() | st.lists(st.sampled_from(["【裁判】", "\n", "\r", "\u2028", "\x85", "<|im_end|>", "游戏"])).map("".join)
)
@settings(max_examples=400, deadline=None)
def test_no_speech_can_pass_for_the_referee(text):
    for kind in (EventKind.SPEECH, EventKind.PK_SPEECH, EventKind.LAST_WORDS, EventKind.WOLF_SAYS):
        line = render_event(replace(SAMPLES[kind], text=text))
        assert len(line.splitlines()) == 1 and line.startswith(("1号", "3号"))
        assert REFEREE not in line and "<" not in line and ">" not in line
        assert len(line) <= MAX_SPEECH_CHARS + 20
    recap = render_recap([replace(SAMPLES[EventKind.SPEECH], text=text)] * 2, 1)
    assert recap.count("\n") == 2 and recap.count(REFEREE) == 1


def test_long_speeches_are_cut_with_a_mark():
    assert quote_speech("好" * 500) == "好" * (MAX_SPEECH_CHARS - 1) + "…"
    assert quote_speech("好" * MAX_SPEECH_CHARS) == "好" * MAX_SPEECH_CHARS


def test_fill_works_in_one_pass_and_leaves_other_braces():
    assert fill('{a}{b} {"json": 1} {}', a="{b}", b="{a}") == '{b}{a} {"json": 1} {}'
    with pytest.raises(ValueError, match=r"unknown \{c\}; known: a, b"):
        fill("{c}", a=1, b=2)


@pytest.mark.parametrize("preset", TEST_PRESETS, ids=lambda preset: preset.name)
def test_the_rules_text_states_every_field_of_the_preset(preset):
    text = rules_prompt(preset)
    assert len(text) <= 350
    assert f"{len(preset.deck)}人" in text and f"第{preset.round_limit}天" in text
    for role in set(preset.deck):
        assert f"{ROLE_NAMES[role]}{preset.deck.count(role)}名" in text
    changes = {
        "win_rule": next(rule for rule in WinRule if rule is not preset.win_rule),
        "round_limit": preset.round_limit + 1,
        "wolves_may_pass": not preset.wolves_may_pass,
        "wolves_may_hit_wolves": not preset.wolves_may_hit_wolves,
        "may_abstain": not preset.may_abstain,
        "deck": (*preset.deck, Role.VILLAGER),
    }
    if preset.deck.count(Role.WOLF) > 1:
        changes["wolf_talk_rounds"] = preset.wolf_talk_rounds + 1
    for field, value in changes.items():
        assert rules_prompt(replace(preset, **{field: value})) != text, field


def test_the_rules_text_names_both_win_rules():
    assert "存活狼人不少于存活好人" in rules_prompt(STRICT)
    assert "神职全部出局或村民全部出局" in rules_prompt(SEVEN)


def test_every_role_of_every_preset_has_guidance_and_knows_itself():
    for preset in PRESETS.values():
        for role in set(preset.deck):
            text = system_prompt(preset, 3, role)
            assert f"你是3号，身份是{ROLE_NAMES[role]}，属{SIDE_NAMES[role.side]}" in text
            assert rules_prompt(preset) in text and "决定：" in text and "{" not in text


def test_system_prompt_templates_can_be_replaced_by_name_only():
    text = system_prompt(TINY, 1, Role.WOLF, {"guidance_wolf": "狠一点{x: 1}", "system": "{seat}|{guidance}|{rules}"})
    assert text == f"1号|狠一点{{x: 1}}|{rules_prompt(TINY)}"
    with pytest.raises(ValueError, match=r"unknown prompt templates \['guidance_wolff'\].*guidance_wolf"):
        system_prompt(TINY, 1, Role.WOLF, {"guidance_wolff": ""})
    with pytest.raises(ValueError, match=r"unknown \{sead\}"):
        system_prompt(TINY, 1, Role.WOLF, {"system": "{sead}"})
    assert "system" in SYSTEM_TEMPLATES


VOTE = Request(2, Decision.EXILE_VOTE, 1, Phase.EXILE_VOTE, (1, 3, 4), True, False, Action())


@pytest.mark.parametrize("decision", Decision)
def test_every_question_lists_what_is_legal_and_the_form(decision):
    speaks = decision in (Decision.WOLF_TALK, Decision.SPEECH, Decision.PK_SPEECH, Decision.LAST_WORDS)
    request = replace(VOTE, decision=decision, speaks=speaks, targets=() if speaks else VOTE.targets)
    question = render_question(request)
    assert question.startswith(f"{REFEREE}2号，") and "\n" not in question
    if speaks:
        assert "“过”" in question and "决定" not in question
    else:
        assert all(choice_name(target, decision) in question for target in choices(request)) and "决定：" in question


def test_a_question_offers_passing_only_where_it_is_legal():
    assert "弃票" in render_question(VOTE)
    assert "弃票" not in render_question(replace(VOTE, may_pass=False))


def test_the_re_ask_says_what_was_wrong_and_asks_again():
    error = ReplyError("ambiguous")
    assert error.message in render_reply_error(error, VOTE)
    assert render_question(VOTE) in render_reply_error(error, VOTE)


def test_an_observation_is_shown_as_news_and_question():
    state = new_game(TINY, 1)
    request = pending(state)[0]
    shown = render_observation(observe(state, request.seat))
    assert shown.splitlines()[-1] == render_question(request)
    assert shown.splitlines()[1] == f"{REFEREE}{request.seat}号的身份是{ROLE_NAMES[state.role_of(request.seat)]}。"
    sleeper = next(seat for seat in TINY.seats if state.role_of(seat) is Role.VILLAGER)
    assert "，请" not in render_observation(observe(state, sleeper))


@given(st.sampled_from(TEST_PRESETS), st.integers(0, 1000))
@settings(max_examples=30, deadline=None)
def test_a_recap_tells_a_seat_only_what_it_may_know(preset, seed):
    state = play_random(preset, seed, seed)
    for seat in preset.seats:
        recap = render_recap(state.events, seat)
        secret = [event for event in state.events if not event.visible_to(seat)]
        known = {render_event(event) for event in state.events if event.visible_to(seat)}
        assert recap == render_recap([event for event in state.events if event.visible_to(seat)], seat)
        assert f"你是{seat}号" in recap
        assert not any(line in recap.splitlines() for line in {render_event(e) for e in secret} - known)
        assert f"{seat}号的身份是{ROLE_NAMES[state.role_of(seat)]}" in recap


def test_a_recap_of_the_longest_tiny_game_fits_a_small_context():
    longest = max((play_random(TINY, seed, seed) for seed in range(300)), key=lambda state: len(state.events))
    wordy = [replace(event, text="好" * 300) if event.text else event for event in longest.events]
    assert len(render_recap(wordy, 1)) < 1600


def test_scripted_sentences_read_back():
    claim = say_seer_claim([(1, 3, Side.WOLF), (2, 11, Side.GOOD)])
    assert CHECK_CLAIM.findall(claim) == [("1", "3", "狼人"), ("2", "11", "好人")]
    assert CHECK_CLAIM.findall(say_seer_claim([])) == []
    assert ACCUSATION.findall(say_accusation(11)) == ["11"]
    assert ACCUSATION.findall(say_following(3, 12)) == ["12"]
    assert KILL_PROPOSAL.findall(say_kill_proposal(4)) == ["4"]


def test_a_transcript_shows_roles_first_and_every_event_with_who_knew():
    state = play_brains(SEVEN, 4, ScriptedBrain)
    text = render_transcript(SEVEN, 4, state.events, winner(state))
    lines = text.splitlines()
    assert lines[0] == "# 7p_test，种子4" and lines[2] == "## 身份"
    assert [line.split("（")[0] for line in lines[3:10]] == [
        f"{seat}号　{ROLE_NAMES[state.role_of(seat)]}" for seat in SEVEN.seats
    ]
    for event in state.events:
        if event.kind in (EventKind.SPEECH, EventKind.WOLF_SAYS, EventKind.SEER_RESULT, EventKind.VOTE):
            assert any(line.startswith(render_event(event)) for line in lines)
    assert "（仅" in text and f"## 结果：{RESULT_NAMES[winner(state)]}" in text
    assert "## 结果：未结束" in render_transcript(SEVEN, 4, state.events[:-1], None)
