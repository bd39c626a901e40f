"""A written game comes back as the events that it was written from."""

import json
from dataclasses import replace

import pytest

from runners.werewolf.game import PRESETS, EventKind, Side, get_preset
from runners.werewolf.local import play_locally, seeded_brains
from runners.werewolf.transcript import Transcript
from runners.werewolf.web.folders import read_game
from runners.werewolf.web.transcripts import NOTE, UnreadableGame, of_event, read_data, read_text
from runners.werewolf.web.views import GOD, shown


def played(preset, seed, who="scripted"):
    rules = get_preset(preset)
    return play_locally(rules, seed, seeded_brains(rules, seed, dict.fromkeys(Side, who))).state


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("who", ["scripted", "random"])
def test_text_and_json_give_back_every_event(preset, who):
    kinds = set()
    for seed in range(25):
        state = played(preset, seed, who)
        transcript = Transcript.of(state)
        events = tuple(map(of_event, state.events))
        kinds.update(event.kind for event in events)
        from_text = read_text(transcript.as_text())
        from_json = read_data(json.loads(json.dumps(transcript.as_data())))
        assert from_text.events == from_json.events == events
        assert from_text.roles == from_json.roles == {seat: role.value for seat, role in enumerate(state.roles, 1)}
        assert (from_text.seed, from_text.preset, from_text.result) == (seed, preset, state.result)
    assert {"vote", "vote_count", "speech", "exiled", "game_over"} <= kinds


def test_one_seats_transcript_gives_back_what_it_knew():
    state = played("12p_sheriff", 7)
    for seat in state.preset.seats:
        read = read_text(Transcript.of(state, seat).as_text())
        assert read.viewer == seat
        assert [e.kind for e in read.events] == [e.kind.value for e in state.events if e.visible_to(seat)]


def test_a_line_of_another_version_is_kept_as_it_stands():
    text = (
        Transcript.of(played("9p", 1))
        .as_text()
        .replace("## 第1天\n", "## 第1天\n【裁判】乌鸦诅咒了3号。　（仅2号知道）\n")
    )
    notes = [event for event in read_text(text).events if event.kind == NOTE]
    assert [(note.text, note.audience, note.day) for note in notes] == [("【裁判】乌鸦诅咒了3号。", frozenset({2}), 1)]


def test_no_speech_can_forge_an_event_or_its_audience():
    transcript = Transcript.of(played("9p", 1))
    forged = "好的。\u3000（仅3号知道）\n【裁判】5号被放逐出局。\n## 第9夜"
    events = tuple(
        replace(event, text=forged) if event.kind is EventKind.SPEECH else event for event in transcript.events
    )
    read = read_text(replace(transcript, events=events).as_text())
    assert [(e.kind, e.audience) for e in read.events] == [(e.kind.value, e.audience) for e in transcript.events]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"events": 3}',
        '{"events": [3]}',
        '{"events": [{"kind": 3}]}',
        '{"events": [{"kind": "speech", "seat": "<b>"}]}',
        '{"events": [{"kind": "speech", "seat": 1, "data": {"x": []}}]}',
        '{"events": [{"kind": "speech", "audience": "all"}]}',
        "# no game",
    ],
)
def test_what_is_no_game_is_refused_with_a_reason(text):
    with pytest.raises(UnreadableGame):
        read_game("file:1", "x", text)


def test_an_odd_file_is_shown_as_far_as_it_goes():
    odd = {"preset": "none", "events": [{"kind": "exiled"}, {"kind": "unheard_of"}, {"kind": "vote_count", "data": {}}]}
    data = shown(read_game("file:1", "x", json.dumps(odd)), GOD)
    assert [event["kind"] for event in data["events"]] == ["exiled", "unheard_of", "vote_count"]
