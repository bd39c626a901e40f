"""What a viewer is sent: everything that it may know, and not a byte that depends on anything else."""

import asyncio
import json
from itertools import product

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from runners.werewolf.game import (
    PRESETS,
    Event,
    EventKind,
    get_preset,
    new_game,
    observe,
    pending,
)
from runners.werewolf.players import Msg
from runners.werewolf.transcript import asked_in, event_data, game_data
from runners.werewolf.web.seats import Seat
from runners.werewolf.web.tables import Table, TableRequest
from runners.werewolf.web.views import GOD, PUBLIC, ShownGame, UnreadableGame, read_game, shown
from store.schema import TokenLimits
from tests.support.game.two_worlds import draw_worlds
from tests.support.werewolf.web_server import WebServer


def asked_as_often(observer, worlds):
    """The beginnings of two games in which the observer was asked the same number of times."""
    counts = [sum(observer in actions for _, actions, _ in states) for states in worlds]
    common, beginnings = min(counts), []
    assume(common)
    for states in worlds:
        asked, beginning = 0, []
        for step in states:
            asked += observer in step[1]
            if asked > common:
                break
            beginning.append(step)
            if asked == common and observer in step[1]:
                break
        beginnings.append(beginning)
    return beginnings


worlds = given(st.sampled_from(["12p_sheriff", "9p", "7p"]), st.integers(0, 10**6), st.integers(0, 10**6), st.data())


def as_live(state, turns=(), live=True):
    return ShownGame(
        id="hub:x", title="x", preset=state.preset.name, events=list(map(event_data, state.events)), seed=state.seed,
        live=live, asked=asked_in(state), turns=list(turns),
    )  # fmt: skip


class GamesOfAWorld:
    """Stands for a hub's games: one that goes on step by step, with a turn of every seat that is asked."""

    url = "http://hub"

    def __init__(self, states, observer):
        self.seen, turns = [], []
        for state, actions, _ in states:
            self.seen.append(as_live(state, turns))
            for seat, action in sorted(actions.items()):
                (request,) = [request for request in pending(state) if request.seat == seat]
                said = str(action) if seat == observer else f"{state.role_of(seat)} {action}"
                known = {"reply": said, "thought": said, "turn": 0, "tokens": (1, 1)}
                turns.append(turn(seat, request.decision.value, len(state.events), day=state.day, **known))
        self.seen.append(as_live(states[-1][0], live=False))
        asked = [number for number, (_, actions, _) in enumerate(states) if observer in actions]
        self.start = asked[-3] if len(asked) > 2 else 0
        """Following begins there, which is the same moment to the observer however much went on unseen."""

    async def game(self, game_id):
        return self.seen[-2]

    async def follow(self, game_id):
        for game in self.seen[self.start :]:
            yield game

    async def turn_spans(self, game_id):
        return []

    async def close(self):
        pass


EVERY_VIEWERS = {
    "/api/game": ({}, {"id": "nothing"}),
    "/api/game/live": ({}, {"from": "3", "turns": "1"}, {"from": "-1", "turns": "x"}),
    "/api/tokens": ({"seat": "1"}, {"seat": "2", "segment": "1"}, {"seat": "0"}),
}
"""What is asked for with a view: with these questions, beside the game's id and the view."""
OF_A_SEAT = {
    "/api/seat/{secret}", "/api/seat/{secret}/live", "/api/seat/{secret}/game", "/api/seat/{secret}/act",
    "/api/table/{table}",
}  # fmt: skip
FOR_ALL = {"/api/config", "/api/games", "/api/run", "/api/tables"}
"""Knows no viewer: it is for those who may see everything, and behind the token where there is one."""


async def test_every_address_is_known_to_the_tests_of_hidden_information(tmp_path):
    async with WebServer(tmp_path) as server:
        found = {route.resource.canonical for route in server.routes() if route.resource.canonical.startswith("/api")}
    assert found == {*EVERY_VIEWERS, *OF_A_SEAT, *FOR_ALL}


@worlds
@settings(max_examples=6, deadline=None)
async def test_the_server_answers_the_same_bytes_in_worlds_that_a_seat_cannot_tell_apart(
    tmp_path_factory, name, seed, play, data
):
    observer, both = draw_worlds(get_preset(name), seed, play, data)
    answers = []
    for states in asked_as_often(observer, both):
        folder = tmp_path_factory.mktemp("world")
        game = folder / "game.json"
        game.write_text(json.dumps(game_data(states[-1][0])))
        found = {}
        async with WebServer(folder, [game], games=GamesOfAWorld(states, observer)) as server:
            for game_id, view, address in product(("file:1", "hub:x"), (str(observer), PUBLIC, GOD), EVERY_VIEWERS):
                for question in EVERY_VIEWERS[address]:
                    asked = {"id": game_id, "view": view} | question
                    if address == "/api/tokens" and asked.get("seat") == view:
                        continue  # its own tokens are kept nowhere here
                    async with server.session.get(address, params=asked) as response:
                        found[view, game_id, address, str(question)] = response.status, await response.read()
            found |= await seats_answers(server, states, observer)
        answers.append(found)
    first, second = answers
    different = {key for key in first if first[key] != second[key]}
    assert {view for view, *_ in different} == {GOD}
    assert {key[:3] for key in different} >= {(GOD, "file:1", "/api/game"), (GOD, "hub:x", "/api/game/live")}


async def seats_answers(server, states, observer):
    """What the server says to the seat's link and to the table's host, after each thing that happens."""
    seat = await seated(states, observer)
    table = seat.table
    server.tables._seats["secret"] = seat
    table.id, table.seats, table.links = "host", {observer: seat}, {"secret": seat}
    server.tables._tables["host"] = table
    found = {}
    for address in OF_A_SEAT - {"/api/seat/{secret}/act", "/api/seat/{secret}/live"}:
        async with server.session.get(address.format(secret="secret", table="host")) as response:
            found["seat", address] = response.status, await response.read()
    for answer in ({"question": 0, "text": "x"}, {"question": seat._question, "choice": 99}, [], None):
        async with server.session.post("/api/seat/secret/act", json=answer, headers={"X-Werewolf": "1"}) as response:
            found["seat", "act", str(answer)] = response.status, await response.read()
    table.phase = "failed"
    async with server.session.get("/api/seat/secret/live") as response:
        found["seat", "live"] = response.status, await response.read()
    return found


@worlds
@settings(max_examples=10, deadline=None)
async def test_a_seats_own_page_is_the_same_and_changes_as_often_in_worlds_that_it_cannot_tell_apart(
    name, seed, play, data
):
    observer, both = draw_worlds(get_preset(name), seed, play, data)
    first, second = asked_as_often(observer, both)
    pages, others = [], []
    await seated(first, observer, pages)
    await seated(second, observer, others)
    assert pages == others != []


async def seated(states, observer, pages=None):
    """The seat's page after its player was told what the table tells. pages: gets every page on the way, as bytes."""
    wanted = TableRequest.read({"preset": states[0][0].preset.name, "seed": 1, "clock": 0, "pace": 0})
    table = Table(wanted, None, TokenLimits(context_tokens=100, reply_tokens=10), None)
    table.phase, table.task, told = "playing", asyncio.create_task(asyncio.sleep(0)), 0
    seat = Seat(observer, table)
    if pages is not None:
        seat.notify = lambda: pages.append(json.dumps(seat.data()))
    for state, actions, _ in states:
        for event in state.events[told:]:
            if event.visible_to(observer):
                await seat.observe(Msg("x", "", "system", metadata={"event": event}))
        told = len(state.events)
        if observer in actions:
            deciding = asyncio.create_task(seat.decide(observe(state, observer)))
            await asyncio.sleep(0)
            seat._answer.set_result(actions[observer])
            await deciding
    return seat


def test_a_seat_is_never_sent_what_would_give_the_deal_away():
    state = new_game(PRESETS["9p"], 5)
    game = as_live(state)
    for viewer in (PUBLIC, *state.preset.seats):
        data = shown(game, viewer)
        assert not {"seed", "title", "players", "about"} & data.keys()
        assert data["roles"] == ({} if viewer == PUBLIC else {str(viewer): state.role_of(viewer).value})
        assert not any("audience" in event for event in data["events"])


def test_a_table_has_the_seats_that_its_start_says_and_else_those_that_occur():
    assert shown(as_live(new_game(PRESETS["12p_sheriff"], 5)), PUBLIC)["seats"] == 12
    vote = {"kind": "vote", "day": 1, "seat": 2, "target": 7}
    assert ShownGame(events=[vote]).seats == 7 and ShownGame(events=[vote | {"target": 99}]).seats == 24


def turn(seat, decision, events_before, **fields):
    return {"seat": seat, "decision": decision, "events_before": events_before, **fields}


def test_turns_stand_with_the_events_that_came_of_them():
    events = list(map(event_data, new_game(PRESETS["9p"], 5).events))
    first = len(events)
    for kind, fields in (
        (EventKind.SEER_RESULT, {"seat": 4, "target": 2, "audience": frozenset({4}), "data": {"side": "good"}}),
        (EventKind.DAY_BREAKS, {}),
        (EventKind.SPEECH, {"seat": 4, "text": "a"}),
        (EventKind.SPEECH, {"seat": 2, "text": "b"}),
        (EventKind.VOTE, {"seat": 2, "target": 4}),
        (EventKind.VOTE, {"seat": 4, "target": 2}),
    ):
        events.append(event_data(Event(kind, 1, **fields)))
    turns = [
        turn(4, "seer_check", first),
        turn(2, "witch", first + 1),  # used nothing: no event of its own, and its speech comes of a later question
        turn(4, "speech", first + 2, error="empty"),
        turn(4, "speech", first + 2, is_reask=True),
        turn(2, "speech", first + 3),
        turn(4, "exile_vote", first + 4),
        turn(2, "exile_vote", first + 4),
    ]
    game = ShownGame(events=events, turns=turns)
    assert [turn["event"] - first for turn in shown(game, GOD)["turns"]] == [0, 1, 2, 2, 3, 5, 4]
    known = shown(game, 2)  # to whom the seer's result is unknown, and with it how many events there are
    assert [known["events"][turn["event"]]["kind"] for turn in known["turns"]] == ["day_breaks", "speech", "vote"]
    assert not any("events_before" in turn for turn in known["turns"])


def test_what_a_decision_changed_is_shown_to_who_sees_everything():
    events, worth = list(map(event_data, new_game(PRESETS["9p"], 5).events)), {"before": 0.1, "after": 0.5, "games": 5}
    game = read_game({"events": events, "turns": [turn(2, "exile_vote", 3, worth=worth)]})
    assert shown(game, GOD)["turns"][0]["worth"] == worth
    assert "worth" not in shown(game, 2)["turns"][0]
    facts = {"vote_against_enemy": 1.0, "attack_on_enemy": 1.0, "reask": 1.0}  # of the named seat's card
    game = read_game({"events": events, "turns": [turn(2, "exile_vote", 3, facts=facts)]})
    assert shown(game, GOD)["turns"][0]["facts"] == facts and shown(game, 2)["turns"][0]["facts"] == {"reask": 1.0}
    with pytest.raises(UnreadableGame):
        read_game(
            {"events": events, "turns": [turn(2, "exile_vote", 3, worth={"before": "<b>", "after": 0, "games": 2})]}
        )


@pytest.mark.parametrize("view", ["0", "10", "-1", "1.0", "²", "everything", ""])
async def test_a_view_that_does_not_exist_is_refused(tmp_path, view):
    game = tmp_path / "game.json"
    game.write_text(json.dumps(game_data(new_game(PRESETS["9p"], 1))))
    async with WebServer(tmp_path, [game]) as server:
        assert (await server.get("/api/game", id="file:1", view=view))[0] == 400


async def test_of_one_seats_transcript_only_its_view_can_be_asked_for(tmp_path):
    game = tmp_path / "game.json"
    game.write_text(json.dumps(game_data(new_game(PRESETS["9p"], 1), 3)))
    async with WebServer(tmp_path, [game]) as server:
        assert (await server.get("/api/game", id="file:1", view="4"))[0] == 400
        assert (await server.get("/api/game", id="file:1", view="god"))[1]["view"] == "3"
