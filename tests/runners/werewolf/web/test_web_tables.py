"""Tables: how long they stay open, and a seat's answers: taken once, in time, and within the rules."""

import asyncio
from types import SimpleNamespace

import aiohttp
import pytest

from runners.werewolf.game import Decision, Side, apply, get_preset, new_game, observe, pending
from runners.werewolf.local import seeded_brains
from runners.werewolf.transcript import asked_in
from runners.werewolf.web import seats
from runners.werewolf.web.seats import PacedPlayer, Seat, UnusableTable
from tests.support.werewolf.seat_players import OURS, open_table, pages_of, play_seat
from tests.support.werewolf.web_server import WebServer


async def test_abandoned_tables_make_room_and_tables_in_use_stay(tmp_path, monkeypatch):
    clock = [1000.0]
    monkeypatch.setattr(seats.time, "monotonic", lambda: clock[0])
    async with WebServer(tmp_path) as server:
        tables = server.tables
        wanted = {"preset": "5p_tiny", "people": 1, "clock": 0}
        watched, hosted, *_ = [(await tables.open(wanted))["table"] for _ in range(64)]
        with pytest.raises(UnusableTable, match="64 tables"):
            await tables.open(wanted)
        page = tables.seat(next(iter(tables.table(watched).links))).follow()
        await anext(page)
        clock[0] += 31 * 60
        tables.table(hosted)
        await tables.open(wanted)
        assert tables.table(watched) and tables.table(hosted)
        assert len(tables._tables) == 3 and len(tables._seats) == 3
        await page.aclose()


async def test_two_people_play_one_game_and_each_is_sent_its_own_role_alone(tmp_path):
    async with WebServer(tmp_path) as server, aiohttp.ClientSession(server.url) as session:
        _, seats_of_people = await open_table(session, preset="9p", people=2, seed=31)
        begun = [anext(page async for page in pages_of(session, seat) if page["request"]) for seat in seats_of_people]
        ends, *pages = await asyncio.gather(
            asyncio.gather(*(play_seat(session, seat) for seat in seats_of_people)), *begun
        )
    assert len({page["seat"] for page in pages}) == 2
    assert all(list(page["game"]["roles"]) == [str(page["seat"])] for page in pages)
    assert {(page["phase"], page["game"]["result"]) for page in ends} == {("over", ends[0]["game"]["result"])}


async def test_a_game_that_cannot_be_stored_is_refused_before_it_and_shown_after_it(tmp_path):
    (tmp_path / "file").touch()
    async with WebServer(tmp_path) as server, aiohttp.ClientSession(server.url) as session:
        _, (seat,) = await open_table(session, preset="5p_tiny", people=1, seed=31)
        server.tables._keep = tmp_path / "file"  # as of a disk that is full by now
        end = await play_seat(session, seat)
        assert end["phase"] == "over" and end["game"]["roles"] and "could not be stored" in end["problem"]
        with pytest.raises(UnusableTable, match=r"cannot be stored in .*file: start with --keep"):
            await server.tables.open({"preset": "5p_tiny"})


async def test_an_answer_that_was_accepted_in_the_last_moment_counts():
    state = new_game(get_preset("5p_tiny"), 5)
    asked = next(iter(pending(state))).seat
    seat = Seat(asked, SimpleNamespace(clock=1e-9))
    decision = asyncio.create_task(seat.decide(observe(state, asked)))
    await asyncio.sleep(0)  # the question is asked, and its time is over when the loop looks next
    asyncio.get_running_loop().call_soon(seat.answer, {"question": 1, "choice": 0})
    assert not (await decision).defaulted


async def test_a_pause_never_tells_whom_the_game_asks_in_secret(monkeypatch):
    paused = []

    async def sleep(seconds):
        assert 1.0 <= seconds <= 3.0
        paused.append(request.decision)

    monkeypatch.setattr(seats, "asyncio", SimpleNamespace(sleep=sleep))
    preset = get_preset("12p_sheriff")
    brains = seeded_brains(preset, 5, {Side.WOLF: "random", Side.GOOD: "random"})
    players = {seat: PacedPlayer(seat, brain, 2.0) for seat, brain in brains.items()}
    state, secret = new_game(preset, 5), set()
    while pending(state):
        secret |= {Decision(decision) for _, decision, hidden in asked_in(state) if hidden}
        actions = {}
        for request in pending(state):
            decided = await players[request.seat].decide(observe(state, request.seat))
            actions[request.seat] = decided.action
        state = apply(state, actions)
    assert {Decision.SPEECH, Decision.EXILE_VOTE} <= set(paused)
    assert {Decision.WOLF_TALK, Decision.WOLF_KILL} <= secret and not secret & set(paused)


async def test_an_answer_that_comes_twice_or_late_or_against_the_rules_changes_nothing(tmp_path):
    async with WebServer(tmp_path) as server, aiohttp.ClientSession(server.url, headers=OURS) as session:
        _, (seat,) = await open_table(session, preset="9p", seed=12)

        async def answer(**given):
            async with session.post(f"{seat}/act", json=given) as response:
                return response.status

        pages = pages_of(session, seat)
        async with asyncio.timeout(30):
            request = await anext(page["request"] async for page in pages if page["request"])
        assert not request["text"].startswith("【")  # the page says who asks
        number = request["question"]
        for wrong in ({"choice": 99}, {"choice": "1"}, {"choice": True}, {"text": 3}, {"text": "长" * 5000}):
            assert await answer(**({"question": number, "text": "好"} | wrong)) == 400
        assert await answer(question=number + 1, text="好") == 409
        assert await answer(question=number, text="好") == 200
        assert await answer(question=number, text="再来") == 409
        async with session.get(f"{seat}/game") as response:
            assert response.status == 404  # secrets stay secret until the end
        await pages.aclose()
