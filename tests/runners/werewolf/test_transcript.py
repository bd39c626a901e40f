"""Locks what a transcript tells, in text and as data, with every secret and as one seat knew it."""

import json

import pytest

from runners.werewolf.game import PRESETS, Role, new_game
from runners.werewolf.transcript import Transcript
from tests.support.game.game_playing import play_random

TWELVE = PRESETS["12p_sheriff"]


@pytest.fixture(scope="module")
def state():
    return play_random(TWELVE, 4, 4)


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


def test_a_seat_that_does_not_exist_is_named():
    with pytest.raises(ValueError, match="seats 1 to 12, not 13"):
        Transcript.of(new_game(TWELVE, 1), 13)
