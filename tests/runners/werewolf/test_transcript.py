"""Locks what a transcript tells, in text and as data, with every secret and as one seat knew it."""

import json

import pytest

from runners.werewolf.game import PRESETS, Role
from runners.werewolf.transcript import event_of, game_data
from tests.support.game.game_playing import play_random

TWELVE = PRESETS["12p_sheriff"]


@pytest.fixture(scope="module")
def state():
    return play_random(TWELVE, 4, 4)


def test_the_data_hold_the_rules_the_deal_and_every_event(state):
    data = json.loads(json.dumps(game_data(state)))
    assert (data["preset"], data["seed"], data["viewer"], data["result"]) == ("12p_sheriff", 4, None, state.result)
    assert data["rules"]["win_rule"] == "wipe_a_kind" and data["rules"]["sheriff"] is True
    assert data["roles"] == {str(seat): state.role_of(seat) for seat in TWELVE.seats}
    assert tuple(map(event_of, data["events"])) == state.events


def test_a_seats_data_tell_no_other_role(state):
    villager = next(seat for seat in TWELVE.seats if state.role_of(seat) is Role.VILLAGER)
    data = game_data(state, villager)
    assert data["roles"] == {str(villager): "villager"} and data["viewer"] == villager
    assert all(event.get("audience") in (None, [villager]) for event in data["events"])
