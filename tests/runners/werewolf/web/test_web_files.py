"""Games in files: shown as what they are, or refused with a reason."""

import json

import pytest

from runners.werewolf.game import PRESETS, EventKind, get_preset
from runners.werewolf.transcript import game_data
from runners.werewolf.web.folders import read_file
from runners.werewolf.web.views import GOD, UnreadableGame, read_game, shown
from tests.support.game.game_playing import play_brains
from tests.support.werewolf.web_server import WebServer


def shown_file(tmp_path, text, viewer=GOD):
    path = tmp_path / "game.json"
    path.write_text(text)
    return shown(read_game(read_file(path)), viewer)


@pytest.mark.parametrize("preset", PRESETS)
def test_a_written_game_is_shown_with_every_event(tmp_path, preset):
    state = play_brains(get_preset(preset), 3, "random")
    data = shown_file(tmp_path, json.dumps(game_data(state)))
    assert [(event["kind"], event["day"]) for event in data["events"]] == [(e.kind.value, e.day) for e in state.events]
    assert data["roles"] == {str(seat): state.role_of(seat).value for seat in state.preset.seats}
    assert (data["seed"], data["preset"], data["result"]) == (3, preset, state.result.value)


async def test_the_game_that_ships_is_one_of_todays(tmp_path):
    async with WebServer(tmp_path) as server:
        (_, lobby), (_, game) = await server.get("/api/config"), await server.get("/api/game", id="golden:1")
    assert lobby["featured"] == game["id"]
    assert game["preset"] in PRESETS and {event["kind"] for event in game["events"]} <= set(EventKind)
    assert game["result"] and len(game["roles"]) == game["seats"] == 12


def test_one_seats_game_holds_what_it_knew(tmp_path):
    state = play_brains(get_preset("12p_sheriff"), 7)
    for seat in state.preset.seats:
        data = shown_file(tmp_path, json.dumps(game_data(state, seat)), seat)
        assert data["onlyView"] == seat
        assert [e["kind"] for e in data["events"]] == [e.kind.value for e in state.events if e.visible_to(seat)]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[" * 60_000,
        "[]",
        '{"events": 3}',
        '{"events": [{"kind": "speech", "day": 1, "seat": "<b>"}]}',
        "# 9p，种子1，上帝视角",
    ],
)
def test_what_is_no_game_is_refused_with_a_reason(tmp_path, text):
    with pytest.raises(UnreadableGame):
        shown_file(tmp_path, text)


def test_an_odd_file_is_shown_as_far_as_it_goes(tmp_path):
    kinds = ["exiled", "unheard_of", "vote_count"]
    events = [{"kind": kind, "day": 1, "data": {}} for kind in kinds]
    data = shown_file(tmp_path, json.dumps({"preset": "none", "events": events}))
    assert [event["kind"] for event in data["events"]] == kinds
