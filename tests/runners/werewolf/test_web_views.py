"""What a viewer is sent: everything that it may know, and not a byte that depends on anything else."""

import asyncio
import json

import aiohttp
import pytest
from game_playing import steps
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from test_game_properties import _Undecidable, blind_chooser
from web_server import WebServer

from runners.werewolf.game import (
    PRESETS,
    Decision,
    Event,
    EventKind,
    Role,
    Side,
    deal,
    get_preset,
    new_game,
    observe,
    winner,
)
from runners.werewolf.players import Msg
from runners.werewolf.transcript import Transcript
from runners.werewolf.web.live_game import asked_in
from runners.werewolf.web.seats import SeatView
from runners.werewolf.web.transcripts import of_event
from runners.werewolf.web.views import GOD, PUBLIC, ShownGame, ShownTurn, place_turns, shown

NIGHT_WORK = {Role.GUARD: Decision.GUARD, Role.WITCH: Decision.WITCH}


def two_worlds(preset, seed, play, observer, one, other):
    """The states of two games that differ in two roles that the observer cannot know, as long as both go on."""
    roles = deal(preset, seed)
    swapped = list(roles)
    swapped[one - 1], swapped[other - 1] = roles[other - 1], roles[one - 1]
    assume(roles[one - 1] is not roles[other - 1])
    assume(roles[observer - 1].side is Side.GOOD or roles[one - 1].side is roles[other - 1].side is Side.GOOD)
    prey = frozenset(s for s in preset.seats if roles[s - 1].side is swapped[s - 1].side is Side.GOOD)
    idle = frozenset(NIGHT_WORK[role] for role in (roles[one - 1], roles[other - 1]) if role in NIGHT_WORK)
    worlds = []
    for dealt in (roles, tuple(swapped)):
        choose = blind_chooser(play, frozenset((one, other)), prey, idle)
        states = []
        try:
            for before, actions, after in steps(new_game(preset, seed, dealt), choose):
                if observer in actions and winner(before) is None:
                    states.append((before, actions[observer], after))
        except _Undecidable:
            pass
        worlds.append(states)
    return worlds


worlds = given(st.sampled_from(["12p_sheriff", "9p", "7p"]), st.integers(0, 10**6), st.integers(0, 10**6), st.data())


def drawn(name, seed, play, data):
    preset = get_preset(name)
    observer, one, other = data.draw(st.permutations(preset.seats))[:3]
    return observer, two_worlds(preset, seed, play, observer, one, other)


def as_live(state):
    events = tuple(map(of_event, state.events))
    return ShownGame(
        "hub:x", "x", state.preset.name, len(state.preset.seats), events, None, state.seed, live=True,
        asked=asked_in(state),
    )  # fmt: skip


@worlds
@settings(max_examples=60, deadline=None)
def test_a_live_game_sends_a_seat_the_same_bytes_in_worlds_that_it_cannot_tell_apart(name, seed, play, data):
    observer, (first, second) = drawn(name, seed, play, data)
    for (state, _, _), (swapped, _, _) in zip(first, second, strict=False):
        for viewer in (observer, PUBLIC):
            assert json.dumps(shown(as_live(state), viewer)) == json.dumps(shown(as_live(swapped), viewer))
        assert json.dumps(shown(as_live(state), GOD)) != json.dumps(shown(as_live(swapped), GOD))


@worlds
@settings(max_examples=25, deadline=None)
async def test_the_server_answers_the_same_bytes_in_worlds_that_a_seat_cannot_tell_apart(
    tmp_path_factory, name, seed, play, data
):
    observer, (first, second) = drawn(name, seed, play, data)
    common = min(len(first), len(second))
    assume(common)
    answers = []
    for states in (first, second):
        folder = tmp_path_factory.mktemp("world")
        game = folder / "game.json"
        game.write_text(json.dumps(Transcript.of(states[common - 1][0]).as_data()))
        async with WebServer(folder, [game]) as server, aiohttp.ClientSession(server.url) as session:
            found = {}
            for view in (str(observer), PUBLIC, GOD):
                async with session.get("/api/game", params={"id": "file:1", "view": view}) as response:
                    assert response.status == 200
                    found[view] = await response.read()
            answers.append(found)
    assert answers[0][str(observer)] == answers[1][str(observer)]
    assert answers[0][PUBLIC] == answers[1][PUBLIC]
    assert answers[0][GOD] != answers[1][GOD]


@worlds
@settings(max_examples=40, deadline=None)
async def test_a_seats_own_page_is_the_same_and_changes_as_often_in_worlds_that_it_cannot_tell_apart(
    name, seed, play, data
):
    observer, (first, second) = drawn(name, seed, play, data)
    common = min(len(first), len(second))
    assert await pages_of(first[:common], observer) == await pages_of(second[:common], observer)


async def pages_of(states, observer):
    """Every page that the seat's player shows when it is told what the table tells, as bytes."""
    if not states:
        return []
    pages, told = [], 0
    view = SeatView(states[0][0].preset, observer, 0, lambda: None)
    view.phase = "playing"
    view.player._changed = lambda: pages.append(json.dumps(view.data()))
    for state, action, _ in states:
        for event in state.events[told:]:
            if event.visible_to(observer):
                await view.player.observe(Msg("x", "", "system", metadata={"event": event}))
        told = len(state.events)
        deciding = asyncio.create_task(view.player.decide(observe(state, observer)))
        await asyncio.sleep(0)
        view.player._answer.set_result(action)
        await deciding
    return pages


def test_a_seat_is_never_sent_what_would_give_the_deal_away():
    state = new_game(PRESETS["9p"], 5)
    game = as_live(state)
    for viewer in (PUBLIC, *state.preset.seats):
        data = shown(game, viewer)
        assert not {"seed", "title", "players", "about"} & data.keys()
        assert data["roles"] == ({} if viewer == PUBLIC else {str(viewer): state.role_of(viewer).value})
        assert not any("audience" in event for event in data["events"])


def test_the_seats_of_a_table_are_told_by_its_start():
    assert len(shown(as_live(new_game(PRESETS["12p_sheriff"], 5)), PUBLIC)["events"]) == 2  # its start, and the night


def turn(seat, decision, day=1, error=None, **fields):
    return ShownTurn(seat=seat, day=day, decision=decision, reply="", error=error, **fields)


def test_turns_stand_with_the_events_that_came_of_them():
    events = list(map(of_event, new_game(PRESETS["9p"], 5).events))
    for kind, fields in (
        (EventKind.SEER_RESULT, {"seat": 4, "target": 2, "audience": frozenset({4}), "data": {"side": "good"}}),
        (EventKind.DAY_BREAKS, {}),
        (EventKind.SPEECH, {"seat": 4, "text": "a"}),
        (EventKind.SPEECH, {"seat": 2, "text": "b"}),
        (EventKind.VOTE, {"seat": 2, "target": 4}),
        (EventKind.VOTE, {"seat": 4, "target": 2}),
    ):
        events.append(of_event(Event(kind, 1, **fields)))
    turns = [
        turn(4, "seer_check"),
        turn(7, "witch"),  # used nothing: by night, but no event of its own
        turn(4, "speech", error="empty"),
        turn(4, "speech", is_reask=True),
        turn(2, "speech"),
        turn(4, "exile_vote"),
        turn(2, "exile_vote"),
    ]
    first = len(events) - 6
    assert [place - first for place in place_turns(turns, events)] == [0, 0, 2, 2, 3, 5, 4]


@pytest.mark.parametrize("view", ["0", "10", "-1", "1.0", "²", "everything", ""])
async def test_a_view_that_does_not_exist_is_refused(tmp_path, view):
    game = tmp_path / "game.json"
    game.write_text(json.dumps(Transcript.of(new_game(PRESETS["9p"], 1)).as_data()))
    async with (
        WebServer(tmp_path, [game]) as server,
        aiohttp.ClientSession(server.url) as session,
        session.get("/api/game", params={"id": "file:1", "view": view}) as response,
    ):
        assert response.status == 400


async def test_of_one_seats_transcript_only_its_view_can_be_asked_for(tmp_path):
    game = tmp_path / "game.json"
    game.write_text(json.dumps(Transcript.of(new_game(PRESETS["9p"], 1), 3).as_data()))
    async with WebServer(tmp_path, [game]) as server, aiohttp.ClientSession(server.url) as session:
        async with session.get("/api/game", params={"id": "file:1", "view": "4"}) as response:
            assert response.status == 400
        async with session.get("/api/game", params={"id": "file:1", "view": "god"}) as response:
            assert (await response.json())["view"] == "3"
