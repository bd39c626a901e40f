"""Locks what a transcript tells, in text and as data, with every secret and as one seat knew it."""

import json

import pytest

from runners.werewolf.game import PRESETS, EventKind, Role, Side, new_game
from runners.werewolf.prompts_zh.names import RESULT_NAMES, ROLE_NAMES
from runners.werewolf.prompts_zh.record import render_event
from runners.werewolf.transcript import Transcript
from tests.support.game.game_playing import play_random

TWELVE = PRESETS["12p_sheriff"]
HEADINGS = {
    EventKind.GAME_START,
    EventKind.ROLE_DEALT,
    EventKind.WOLF_TEAM,
    EventKind.NIGHT_FALLS,
    EventKind.DAY_BREAKS,
    EventKind.GAME_OVER,
}


def told_lines(events):
    """(line, audience) of every event but those that headings tell; a ballot is one line."""
    lines = []
    for event in events:
        if event.kind in HEADINGS:
            continue
        if event.kind in (EventKind.VOTE, EventKind.SHERIFF_VOTE):
            vote = render_event(event).removesuffix("。")
            if lines and lines[-1][0].startswith(vote.split("：")[0] + "：") and lines[-1][2] == event.kind:
                joined = lines[-1][0].removesuffix("。") + "，" + vote.split("：")[1] + "。"
                lines[-1] = (joined, None, event.kind)
                continue
        lines.append((render_event(event), event.audience, event.kind))
    return [(line, audience) for line, audience, _ in lines]


@pytest.fixture(scope="module")
def state():
    return play_random(TWELVE, 4, 4)


def test_the_god_view_shows_all_roles_and_every_event_with_who_knew(state):
    lines = Transcript.of(state).as_text().splitlines()
    assert lines[0] == "# 12p_sheriff，种子4，上帝视角" and lines[2] == "## 身份"
    assert [line.split("（")[0] for line in lines[3:15]] == [
        f"{seat}号　{ROLE_NAMES[state.role_of(seat)]}" for seat in TWELVE.seats
    ]
    told = told_lines(state.events)
    shown = [line for line in lines[15:] if line and not line.startswith("##")]
    assert len(shown) == len(told)
    for line, (text, audience) in zip(shown, told, strict=True):
        assert line.startswith(text)
        assert ("（仅" in line.removeprefix(text)) == (audience is not None)
    assert lines[-1] == f"## 结果：{RESULT_NAMES[state.result]}"


@pytest.mark.parametrize("side", Side)
def test_a_seats_view_holds_what_it_may_know_and_nothing_else(state, side):
    seat = next(seat for seat in TWELVE.seats if state.role_of(seat).side is side)
    lines = Transcript.of(state, seat).as_text().splitlines()
    assert lines[0].endswith(f"{seat}号视角")
    roles = lines[3 : lines.index("", 3)]
    assert roles[0].startswith(f"{seat}号　{ROLE_NAMES[state.role_of(seat)]}")
    assert len(roles) == (2 if side is Side.WOLF else 1)
    known = told_lines(event for event in state.events if event.visible_to(seat))
    shown = [line for line in lines[lines.index("", 3) :] if line and not line.startswith("##")]
    assert shown == [text for text, _ in known]
    assert len(known) < len(told_lines(state.events))


def test_the_data_hold_the_rules_the_deal_and_every_event(state):
    data = json.loads(json.dumps(Transcript.of(state).as_data()))
    assert (data["preset"], data["seed"], data["viewer"], data["result"]) == ("12p_sheriff", 4, None, state.result)
    assert data["rules"]["win_rule"] == "wipe_a_kind" and data["rules"]["sheriff"] is True
    assert data["roles"] == {str(seat): state.role_of(seat) for seat in TWELVE.seats}
    assert len(data["events"]) == len(state.events)
    for written, event in zip(data["events"], state.events, strict=True):
        assert (written["kind"], written["day"], written.get("seat"), written.get("target")) == (
            event.kind,
            event.day,
            event.seat,
            event.target,
        )
        assert written.get("audience") == (None if event.audience is None else sorted(event.audience))
        assert written.get("text", "") == event.text and written.get("data", {}) == event.data


def test_a_seats_data_tell_no_other_role(state):
    villager = next(seat for seat in TWELVE.seats if state.role_of(seat) is Role.VILLAGER)
    data = Transcript.of(state, villager).as_data()
    assert data["roles"] == {str(villager): "villager"} and data["viewer"] == villager
    assert all(event.get("audience") in (None, [villager]) for event in data["events"])


def test_a_game_cut_short_says_so():
    text = Transcript.of(new_game(TWELVE, 1)).as_text()
    assert text.splitlines()[-1] == "## 结果：未结束"


def test_a_seat_that_does_not_exist_is_named():
    with pytest.raises(ValueError, match="seats 1 to 12, not 13"):
        Transcript.of(new_game(TWELVE, 1), 13)
