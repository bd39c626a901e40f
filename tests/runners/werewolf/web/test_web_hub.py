"""Games of a real hub: listed by cursor, put together while they are played, and asked for cheaply."""

import asyncio
import json
import random
from itertools import pairwise
from unittest.mock import AsyncMock

import pytest

from runners.policy.client import seed_of
from runners.werewolf.brains import BRAINS
from runners.werewolf.game import get_preset, new_game
from runners.werewolf.local import play_locally
from runners.werewolf.seating import players_by_seat
from runners.werewolf.transcript import event_data
from runners.werewolf.web import hub_games
from runners.werewolf.web.hub_games import HubGames, _Watched
from runners.werewolf.web.views import GOD, read_game, shown
from runners.werewolf.werewolf_play import WerewolfPlay
from runners.worker import Worker
from store.auth import TOKEN_VARIABLE
from store.client import StoreClient
from store.schema import PolicyResources
from store.token_spans import MalformedSpan
from store.werewolf import ResultSpan, encode_events, read_events
from tests.support.fakes import make_turn, spans_of
from tests.support.hub.asking import RETRY, enqueue_tasks
from tests.support.hub.hub_process import HubProcess
from tests.support.tasks import game_task
from tests.support.tasks import play_task as played
from tests.support.werewolf.web_server import WebServer


def make_task(number=0, preset="5p_tiny", good="timid", demonstrators=("scripted", "timid"), **changes):
    own = dict(
        game_id=f"run-step0003-deal{number:02d}-game00", group_id=f"deal{number}", seed=2 * number,
        sampling_seed=number, preset=preset, seating={"wolf": "scripted", "good": good},
        trainable=[], demonstrators=list(demonstrators),
    )  # fmt: skip
    return game_task(context_tokens=20_000, reply_tokens=400, **(own | changes))


@pytest.fixture(scope="module")
def unserved(tiny_model):
    return PolicyResources(run_name="run-0123abcd", version=3, endpoints=(), model=str(tiny_model))


async def play_all(client, max_concurrent=2):
    play = WerewolfPlay(client)
    await Worker(client, play, "worker", max_concurrent, idle_exit_seconds=0.3).run()
    await play.close()


@pytest.mark.parametrize(("preset", "seed"), [("5p_tiny", 3), ("12p_sheriff", 5)])
@pytest.mark.parametrize("demonstrators", [("scripted", "timid"), ("scripted",)])
async def test_the_spans_of_a_game_carry_each_event_once_and_turns_stand_with_theirs(
    unserved, preset, seed, demonstrators
):
    task = make_task(preset=preset, seed=seed, sampling_seed=seed, demonstrators=demonstrators)
    result, turns = await played(task, unserved)
    lengths = [len(read_events(turns[:number])) for number in range(len(turns) + 1)]
    assert lengths == sorted(lengths) and len(set(lengths)) > len(lengths) / 3  # it goes on all the time
    events = read_events([*turns, result])
    roles = dict(enumerate(new_game(get_preset(preset), seed).roles, start=1))
    brains = {
        seat: BRAINS[name](random.Random(seed_of(f"{task.sampling_seed}/{seat}")))
        for seat, name in players_by_seat(task, roles).items()
    }
    game = play_locally(get_preset(preset), seed, brains)
    assert events == [event_data(event) for event in game.events]
    data = shown(read_game(result.as_data(turns)), GOD)
    assert len(data["turns"]) == len(turns)
    for turn in data["turns"]:
        if turn["decision"] in ("speech", "exile_vote", "wolf_kill", "seer_check") and "target" in turn:
            event = data["events"][turn["event"]]
            assert (event["seat"], event.get("target")) in ((turn["seat"], turn["target"]), (turn["seat"], None))


async def test_whom_a_game_waits_for_is_recorded_with_its_events(unserved):
    _, turns = await played(make_task(preset="9p", good="scripted"), unserved)
    by_round = [(json.loads(turn.events)["asked"], turn) for turn in turns if turn.events]
    for (asked, _), (_, last) in pairwise(by_round):
        assert last.seat in {seat for seat, *_ in asked}
    assert {decision for asked, _ in by_round for _, decision, secret in asked if secret} >= {"witch"}


def test_events_are_read_up_to_the_first_gap():
    event = {"kind": "speech", "day": 1}
    one, two = make_turn(events=encode_events(0, [event])), make_turn(events=encode_events(2, [event]))
    assert read_events([two, one]) == [event]
    with pytest.raises(MalformedSpan, match="events"):
        read_events([make_turn(events="[1]")])


async def test_the_list_goes_back_page_by_page_and_filters(hub, client, unserved, tmp_path):
    tasks = [make_task(number, preset="9p" if number % 3 == 0 else "5p_tiny") for number in range(9)]
    await enqueue_tasks(client, unserved, tasks)
    await play_all(client)
    late = await enqueue_tasks(client, unserved, [make_task(50)])
    async with WebServer(tmp_path, hub=hub.url) as server:

        async def page(**query):
            status, data = await server.get("/api/games", **query)
            assert status == 200, data
            return data

        whole = await page()
        assert [row["game"] for row in whole["rows"]] == [task.game_id for task in (make_task(50), *tasks[::-1])]
        assert whole["next"] is None and "total" not in whole
        assert whole["rows"][0]["status"] == "queuing" and "result" not in whole["rows"][0]
        assert {row["run"] for row in whole["rows"]} == {"run-0123abcd"} and {r["version"] for r in whole["rows"]} == {
            3
        }
        assert [row["preset"] for row in (await page(preset="9p"))["rows"]] == ["9p"] * 3
        results = [row.get("result") for row in whole["rows"]]
        for result in ("wolf", "good"):
            assert len((await page(result=result))["rows"]) == results.count(result)
        winners = {role for row in whole["rows"] for role in row.get("winners", ())}
        assert winners
        for role in (*winners, "wolf_king"):
            won = [row for row in whole["rows"] if role in row.get("winners", ())]
            assert (await page(won=role))["rows"] == won
        assert len((await page(status="queuing"))["rows"]) == 1
        assert (await page(policy="policy"))["rows"] == (await page(run="other"))["rows"] == []
        assert [row["game"] for row in (await page(before="4"))["rows"]] == [task.game_id for task in tasks[3::-1]]
        game = f"hub:{late[0]}"
        assert (await server.get("/api/game", id=game))[1]["notice"] == "waiting"
        assert (await server.get("/api/game", id="hub:ro-unknown"))[0] == 404


async def test_tokens_are_those_of_the_spans_with_their_texts(
    hub, client, unserved, tiny_model, tiny_tokenizer, tmp_path
):
    (rollout_id,) = await enqueue_tasks(client, unserved, [make_task(1)])
    await play_all(client)
    games = HubGames(client, hub.url)
    spans = await games.turn_spans(f"hub:{rollout_id}")
    seat = spans[0].seat
    of_seat = [span for span in spans if span.seat == seat]
    async with WebServer(tmp_path, hub=hub.url, tokenizer=tiny_model) as server:
        query = {"id": f"hub:{rollout_id}", "seat": seat, "segment": 0}
        _, tokens = await server.get("/api/tokens", **query)
        for view in ("public", str(seat % 5 + 1)):  # a seat's prompt holds its secrets
            assert (await server.get("/api/tokens", **query, view=view))[0] == 400
    assert tokens["ids"] == [token for span in of_seat for token in (*span.prompt_ids, *span.response_ids)]
    assert [(turn["start"] - turn["given"], turn["end"] - turn["start"]) for turn in tokens["turns"]] == [
        (len(span.prompt_ids), len(span.response_ids)) for span in of_seat
    ]
    assert "".join(tokens["texts"]) == tiny_tokenizer.decode(tokens["ids"], skip_special_tokens=False)
    assert tokens["advantages"] is None and tokens["batch"] is None
    assert set(tokens["logprobs"]) == {None}  # a demonstration: no policy sampled it


async def test_a_result_with_a_role_of_another_version_is_listed(hub, client, unserved, monkeypatch):
    await enqueue_tasks(client, unserved, [make_task(1)])
    await play_all(client)
    decode = ResultSpan.decode

    def thieves(span):
        result = decode(span)
        seats = tuple(seat.model_copy(update={"role": "thief"}) for seat in result.seats)
        return result.model_copy(update={"seats": seats})

    monkeypatch.setattr(ResultSpan, "decode", thieves)
    (row,) = (await HubGames(client, hub.url).page({}))["rows"]
    assert row["players"] == {"wolf": ["scripted"], "good": ["timid"]}


class CountingClient(StoreClient):
    """Counts requests to the hub."""

    def __init__(self, url):
        super().__init__(url, retry_seconds=5)
        self.asked = []

    async def request(self, method, path, json=None, params=None):
        self.asked.append((path, json))
        return await super().request(method, path, json, params)


async def test_a_page_asks_the_hub_as_little_of_many_games_as_of_few(hub, client, unserved):
    counting = CountingClient(hub.url)
    games = HubGames(counting, hub.url)
    await enqueue_tasks(client, unserved, [make_task(number) for number in range(45)])
    counts = []
    for _ in range(2):
        await games.page({})
        counting.asked.clear()
        await games.page({})
        counts.append(len(counting.asked))
        assert all(0 < query["limit"] <= 40 for _, query in counting.asked)
        await enqueue_tasks(client, unserved, [make_task(number) for number in range(100, 600)])
    assert counts[0] == counts[1] <= 4
    await counting.close()


async def test_a_hub_that_goes_away_ends_the_stream_and_who_asks_again_is_told(hub, client, unserved, tmp_path):
    (rollout_id,) = await enqueue_tasks(client, unserved, [make_task(2)])
    query = {"id": f"hub:{rollout_id}"}
    async with WebServer(tmp_path, hub=hub.url, retry_seconds=0.1) as server:
        async with server.session.get("/api/game/live", params=query) as response:
            assert (await response.content.readline()).startswith(b"data: ")
            await hub.stop()
            assert b"event: end" not in await response.read()  # the page asks again
        async with server.session.get("/api/game/live", params=query) as response:
            assert response.status == 502


async def test_a_hub_that_rejects_the_page_is_quoted(unserved, tmp_path, monkeypatch, caplog):
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    (tmp_path / "token").write_text("secret-of-the-hub")
    hub = await HubProcess(tmp_path, "--token-file", str(tmp_path / "token")).start()
    try:
        async with WebServer(tmp_path, hub=hub.url) as server:
            status, answer = await server.get("/api/games")
            await server.tables._opponents.newest()
    finally:
        hub.kill()
    assert status == 502 and answer["problem"].startswith("the hub rejects the request: 401 ")
    assert "the hub's policy is not offered as an opponent" in caplog.text


async def test_the_end_of_a_game_is_seen_though_the_request_after_it_failed(hub, client, unserved):
    (rollout_id,) = await enqueue_tasks(client, unserved, [make_task(1)])
    watched = _Watched(client, f"hub:{rollout_id}")
    await watched.look()
    assert watched.game.live
    await client.update_rollout(rollout_id, status="cancelled")
    watched._looks = 0  # it asks for the status again
    with pytest.MonkeyPatch.context() as broken, pytest.raises(TimeoutError):
        broken.setattr(client, "query_spans", AsyncMock(side_effect=TimeoutError))
        await watched.look()
    await watched.look()
    assert not watched.game.live


async def test_a_retried_game_is_streamed_from_its_beginning_though_its_new_attempt_is_shorter(
    hub, client, unserved, tmp_path, monkeypatch
):
    monkeypatch.setattr(hub_games, "_SOONEST_LOOK_SECONDS", 0.05)
    (rollout_id,) = await enqueue_tasks(client, unserved, [make_task(1)], config=RETRY)
    games = [(await played(make_task(1, sampling_seed=seed), unserved))[1][:turns] for seed, turns in ((1, 8), (2, 4))]
    expected = [([event["kind"] for event in read_events(turns)], len(turns)) for turns in games]

    async def begin(turns):
        (taken,) = await client.dequeue_many_rollouts()
        attempt = taken.attempt.attempt_id
        await client.upload_spans(spans_of(turns, rollout_id, attempt))
        return attempt

    async def received(stream, attempt):
        """The kinds of the events and the number of turns, up to the first news of the attempt."""
        kinds, turns = [], 0
        async for line in stream.content:
            if line.startswith(b"data: "):
                news = json.loads(line[6:])
                kinds, turns = kinds + [event["kind"] for event in news["events"]], turns + len(news["turns"])
                if news["attempt"] == attempt:
                    return kinds, turns

    query = {"id": f"hub:{rollout_id}"}
    first = await begin(games[0])
    async with WebServer(tmp_path, hub=hub.url) as server, asyncio.timeout(20):
        async with server.session.get("/api/game/live", params=query) as stream:
            assert await received(stream, first) == expected[0]
            await client.update_attempt(rollout_id, first, status="failed")
            second = await begin(games[1])
            assert await received(stream, second) == expected[1]
        had = {"from": len(expected[0][0]), "turns": expected[0][1], "attempt": first}
        async with server.session.get("/api/game/live", params=query | had) as stream:
            assert await received(stream, second) == expected[1]


async def test_all_who_watch_a_game_share_one_question_and_each_look_goes_on_where_the_last_ended(
    hub, client, unserved
):
    counting = CountingClient(hub.url)
    games = HubGames(counting, hub.url)
    (rollout_id,) = await enqueue_tasks(client, unserved, [make_task(2, preset="9p")])
    game_id, ends = f"hub:{rollout_id}", []

    async def watch():
        async for game in games.follow(game_id):
            last = game
        ends.append(last)

    watching = [asyncio.create_task(watch()) for _ in range(5)]
    await asyncio.sleep(0)
    await play_all(client)
    await asyncio.wait_for(asyncio.gather(*watching), 60)
    assert {end.result for end in ends} <= {"wolf", "good", "draw"} and len({end.result for end in ends}) == 1
    offsets = [query["offset"] for path, query in counting.asked if path == "/spans/search"]
    assert offsets == sorted(offsets)
    assert games._followed == {}
    data = shown(ends[0], GOD)
    assert data["turns"] and data["players"] and data["about"]["version"] == 3
    await games.close()
