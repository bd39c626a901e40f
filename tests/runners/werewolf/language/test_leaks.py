"""Speeches of a wolf (mates: 3 and 4) that give the wolves away, and many that only look so."""

from functools import cache
from pathlib import Path

import pytest

from runners.werewolf.game import PRESETS, EventKind, Side, get_preset
from runners.werewolf.language.leaks import PROMPT_RUN_CHARS, gives_wolves_away, prints_prompt, prompt_runs
from runners.werewolf.prompts_zh.system import system_prompt
from tests.support.game.game_playing import play_brains

MATES = {3, 4}
SMALL = ("7p", "5p_tiny")
TABLE = Path(__file__).with_name("leaks.txt").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize(("speech", "leaks"), [(line[2:], line[0] == "+") for line in TABLE if line[:1] in ("+", "-")])
def test_what_gives_the_wolves_away_and_what_only_looks_so(speech, leaks):
    assert gives_wolves_away(speech, MATES) is leaks


def test_only_mates_can_be_named():
    assert not gives_wolves_away("我的同伴是3号。", {5})
    assert not gives_wolves_away("我和3号是同伴。", set())
    assert gives_wolves_away("我的同伴是11号。", {11}) and not gives_wolves_away("我的同伴是11号。", {1})


@pytest.mark.parametrize("preset", PRESETS)
def test_wolves_that_play_by_rule_never_leak_and_their_nights_nearly_always_would(preset):
    """Hundreds of ordinary speeches: claims, checks, accusations of mates; and the wolves' own talk, said aloud."""
    speeches = proposals = 0
    runs_of = cache(lambda seat, role: prompt_runs(system_prompt(PRESETS[preset], seat, role)))
    for seed in range(40 if preset in SMALL else 8):
        for brain in ("scripted", "random"):
            state = play_brains(PRESETS[preset], seed, brain)
            wolves = {seat for seat in state.preset.seats if state.role_of(seat).side is Side.WOLF}
            for event in state.events:
                if not event.text or event.seat not in wolves:
                    continue
                mates = wolves - {event.seat}
                if event.kind is EventKind.WOLF_SAYS:
                    proposals += event.text.startswith("建议袭击")
                    assert gives_wolves_away(event.text, mates) or not event.text.startswith("建议袭击"), event.text
                else:
                    speeches += 1
                    assert not gives_wolves_away(event.text, mates), event.text
                    assert not prints_prompt(event.text, runs_of(event.seat, state.role_of(event.seat))), event.text
    assert speeches > 100 and (proposals > 30 or preset == "5p_tiny")


def test_a_speech_that_prints_the_prompt():
    preset = get_preset("12p_sheriff")
    prompt = system_prompt(preset, 2, preset.deck[0])
    runs = prompt_runs(prompt)
    assert prints_prompt(prompt, runs)
    assert prints_prompt("大家好。女巫有解药、毒药各一瓶，每夜至多用一瓶，可不用药。我没药了。", runs)
    assert prints_prompt("女巫有解药毒药 各一瓶每夜至多用一瓶", runs)
    assert not prints_prompt("女巫有解药、毒药各一瓶，", runs)
    assert not prints_prompt("女巫昨晚用了解药吧，今天听听女巫怎么说，我是好人。", runs)
    assert not prints_prompt("", runs) and not prints_prompt("十六个字才算", prompt_runs("短"))
    assert all(len(run) == PROMPT_RUN_CHARS for run in runs)
