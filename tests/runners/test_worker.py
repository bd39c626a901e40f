"""The worker against a real hub: order of spans and status, failures, hand-back, drain, a hub that restarts."""

import asyncio
import itertools
import re
import time
from types import SimpleNamespace

import pytest

from runners.errors import CannotPlay, PolicyUnavailable, UnusableTask
from runners.werewolf.werewolf_play import WerewolfPlay
from runners.worker import Worker
from store.client import StoreUnreachable, connect
from store.protocol import LONGEST_REASON
from store.werewolf import ResultSpan, TurnSpan
from tests.runners.test_network_faults import TURNS, Play, all_closed, enqueue, working
from tests.support.fakes import make_turn
from tests.support.fault_proxy import Fault, FaultProxy
from tests.support.hub.asking import RETRY, enqueue_one, final_reward
from tests.support.tasks import game_task
from tests.support.waiting import until


async def statuses(client, ids):
    return [rollout.status for rollout in await client.query_rollouts(rollout_id_in=ids)]


@pytest.fixture
def play():
    return Play()


async def begun(client, play, **options):
    """(a worker, its task), once a game has come to the gate."""
    play.gate.clear()
    worker = Worker(client, play, "first", **options)
    running = asyncio.create_task(worker.run())
    await play.waiting.wait()
    return worker, running


def failing_once(play, games, error, turns=0):
    """A ``Play`` in which each of the games fails once, after so many turns."""
    failing = [f"game-{number}" for number in games]

    async def play_or_fail(rollout, on_turn):
        if rollout.input["game"] in failing:
            failing.remove(rollout.input["game"])
            for turn in range(turns):
                on_turn(make_turn(turn=turn), 1.7e9, 1.7e9)
            raise error
        return await play(rollout, on_turn)

    return play_or_fail


async def cannot(*given):
    raise UnusableTask("of another workload")


def hand_back_during_reports(monkeypatch, client, worker):
    report = client.end_attempt

    async def slow_answer(*end):
        worker.hand_back()  # while the report is on its way
        await asyncio.sleep(0)
        return await report(*end)

    monkeypatch.setattr(client, "end_attempt", slow_answer)


async def test_a_report_that_did_not_arrive_is_not_repeated_for_a_game_that_another_runner_has_got(hub, client, play):
    """A stock hub takes the end of an attempt that it has replaced, and the game would have two ends."""
    (rollout_id,) = await enqueue(client, 1)
    proxy = FaultProxy(hub.url)
    proxy.plan("update_attempt", [Fault.BAD_GATEWAY])
    await proxy.start()
    afar = connect(proxy.url, retry_seconds=30)
    try:
        running = asyncio.create_task(Worker(afar, play, "w", max_rollouts=1).run())
        await until(lambda: proxy.hit)
        await proxy.stop()
        await client.request("post", f"/rollouts/{rollout_id}/attempts")
        await proxy.start()
        assert (await running).failed == 1
    finally:
        await afar.close()
        await proxy.stop()
    assert [attempt.status for attempt in await client.query_attempts(rollout_id)] == ["running", "preparing"]


async def test_games_are_stored_whole_and_then_succeed(client, play):
    ids = await enqueue(client, 5)
    _, running = await begun(client, play, max_concurrent=3, max_rollouts=5)
    assert play.playing == 3
    play.gate.set()
    assert (await running).finished == 5
    assert await statuses(client, ids) == ["succeeded"] * 5
    for rollout_id in ids:
        spans = list(await client.query_spans(rollout_id))
        assert [TurnSpan.is_in(span) for span in spans] == [True] * TURNS + [False] and ResultSpan.is_in(spans[-1])
        assert [span.sequence_id for span in spans] == list(range(1, TURNS + 2))
        assert spans[-1].start_time == spans[-1].end_time  # readers give its reward to what had ended by then
        assert final_reward(spans) == -1.0


@pytest.mark.parametrize("error", [CannotPlay("no model here"), KeyError("a bug"), ValueError("x" * 10_000)])
async def test_a_failing_game_is_reported_retried_and_costs_the_others_nothing(client, play, error):
    ids = await enqueue(client, 3)
    stats = await Worker(client, failing_once(play, [1], error), "w", max_rollouts=4).run()
    assert (stats.finished, stats.failed) == (3, 1)
    assert await statuses(client, ids) == ["succeeded"] * 3
    first, second = list(await client.query_attempts(ids[1]))
    assert (first.status, second.status) == ("failed", "succeeded")
    assert type(error).__name__ in first.metadata["reason"] and len(first.metadata["reason"]) <= LONGEST_REASON


async def test_a_runner_that_cannot_play_leaves_the_queue_to_others(client, play, caplog):
    ids = await enqueue(client, 20)
    broken = Worker(client, cannot, "broken", max_concurrent=4)
    async with working(broken):
        await until(lambda: "this runner cannot play (UnusableTask: of another workload): waiting 4 s" in caplog.text)
        async with working(Worker(client, play, "w")):
            await all_closed(client, ids)
    assert await statuses(client, ids) == ["succeeded"] * 20
    assert broken.stats.failed < 8


async def test_a_runner_that_has_played_nothing_and_cannot_exits_after_ever_longer_pauses(client, monkeypatch, caplog):
    hurried = SimpleNamespace(monotonic=itertools.count(0, 100).__next__, time=time.time)
    monkeypatch.setattr("runners.worker.time", hurried)  # every pause is over at once
    ids = await enqueue(client, 20)
    with pytest.raises(CannotPlay, match=r"this runner cannot play \(UnusableTask: of another workload\)"):
        await Worker(client, cannot, "broken", max_concurrent=2).run()
    assert re.findall(r"waiting (\d+) s", caplog.text) == ["4", "8", "16"]
    assert "queuing" in await statuses(client, ids)


async def test_a_runner_that_still_plays_something_does_not_exit(client, play, monkeypatch):
    """Two games fail at once, as of a service that is not up yet; the first turns of others take long."""
    monkeypatch.setattr("runners.worker._FIRST_PAUSE_SECONDS", 0.01)
    ids, waiting, gate = await enqueue(client, 8), [], asyncio.Event()

    async def slow(rollout, on_turn):
        waiting.append(rollout)
        await gate.wait()
        return await play(rollout, on_turn)

    async with working(Worker(client, failing_once(slow, [0, 1], CannotPlay("429")), "w", max_concurrent=8)):
        await until(lambda: len(waiting) == 8)
        gate.set()
        await all_closed(client, ids)
    assert await statuses(client, ids) == ["succeeded"] * 8


async def test_a_runner_that_plays_after_all_takes_as_many_as_before(client, play, caplog):
    ids, can_play = await enqueue(client, 12), asyncio.Event()

    async def late(rollout, on_turn):
        await can_play.wait()
        return await play(rollout, on_turn)

    async with working(Worker(client, failing_once(late, [1, 2], CannotPlay("no key")), "w", max_concurrent=3)):
        await until(lambda: "this runner cannot play" in caplog.text)
        can_play.set()
        await all_closed(client, ids)
    assert caplog.text.count("this runner cannot play") == 1


@pytest.mark.parametrize(("error", "turns"), [(PolicyUnavailable("no answer"), 0), (CannotPlay("full"), 1)])
async def test_a_runner_that_is_not_at_fault_is_not_slowed(client, play, caplog, error, turns):
    """The policy's server is away, or games fail after their first turn."""
    ids = await enqueue(client, 6)
    async with working(Worker(client, failing_once(play, range(3), error, turns), "w", max_concurrent=3)):
        await all_closed(client, ids)
    assert "this runner cannot play" not in caplog.text


async def test_handing_back_leaves_the_game_to_another_runner(client, play):
    (rollout_id,) = await enqueue(client, 1)
    worker, running = await begun(client, play)
    worker.hand_back()
    assert (await running).handed_back == 1
    assert await statuses(client, [rollout_id]) == ["requeuing"]
    play.gate.set()
    await Worker(client, play, "second", max_rollouts=1).run()
    (rollout,) = await client.query_rollouts(rollout_id_in=[rollout_id])
    assert (rollout.status, rollout.attempt.worker_id) == ("succeeded", "second")


async def test_handing_back_twice_reports_as_handing_back_once(client, play, monkeypatch):
    (rollout_id,) = await enqueue(client, 1)
    worker, running = await begun(client, play)
    hand_back_during_reports(monkeypatch, client, worker)
    worker.hand_back()
    assert (await running).handed_back == 1
    assert await statuses(client, [rollout_id]) == ["requeuing"]


async def test_handing_back_does_not_lose_a_failure_that_is_being_reported(client, monkeypatch):
    (rollout_id,) = await enqueue(client, 1)
    worker = Worker(client, cannot, "w", max_rollouts=1)
    hand_back_during_reports(monkeypatch, client, worker)
    await worker.run()
    (attempt,) = await client.query_attempts(rollout_id)
    assert attempt.status == "failed" and attempt.metadata["reason"] == "UnusableTask: of another workload"


async def test_handing_back_reaches_games_that_are_just_arriving(client, play, monkeypatch):
    ids = await enqueue(client, 2)
    worker = Worker(client, play, "w")
    take = client.dequeue_many_rollouts

    async def slow_answer(**options):
        taken = await take(**options)
        worker.hand_back()  # the second Ctrl-C, while the hub's answer is on its way
        return taken

    monkeypatch.setattr(client, "dequeue_many_rollouts", slow_answer)
    assert (await worker.run()).handed_back == 2
    assert await statuses(client, ids) == ["requeuing", "requeuing"]


async def test_handing_back_does_not_wait_for_a_hub_that_does_not_answer(client, play, monkeypatch):
    asked = asyncio.Event()

    async def no_answer(**options):
        asked.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(client, "dequeue_many_rollouts", no_answer)
    worker = Worker(client, play, "w")
    running = asyncio.create_task(worker.run())
    await asked.wait()
    worker.hand_back()
    async with asyncio.timeout(30):
        assert (await running).handed_back == 0


async def test_spans_of_a_handed_back_game_never_arrive_late(client, play, monkeypatch):
    """A late span would make the hub believe that the game, already queued again, is running."""
    await enqueue(client, 2)
    play.gate.clear()
    worker = Worker(client, play, "w")
    upload, uploading = client.upload_spans, asyncio.Event()

    async def slow_upload(spans):
        if spans:
            uploading.set()
        await asyncio.sleep(0.3)  # a slow hub
        return await upload(spans)

    monkeypatch.setattr(client, "upload_spans", slow_upload)
    running = asyncio.create_task(worker.run())
    await uploading.wait()
    worker.hand_back()
    await running
    assert {rollout.status for rollout in await client.query_rollouts()} == {"requeuing"}


async def test_draining_finishes_what_is_played_and_takes_nothing_new(client, play):
    ids = await enqueue(client, 2)
    worker, running = await begun(client, play, max_concurrent=1)
    worker.drain()
    play.gate.set()
    assert (await running).finished == 1
    assert sorted(await statuses(client, ids)) == ["queuing", "succeeded"]


@pytest.mark.parametrize("ends", [True, False])
async def test_a_cancelled_rollout_stays_cancelled_and_is_dropped_at_a_heartbeat(client, play, ends):
    """The stock hub would let a late success overwrite it; a game that does not end would wait for ever."""
    (rollout_id,) = await enqueue(client, 1)
    _, running = await begun(client, play, max_rollouts=1, **({} if ends else {"heartbeat_seconds": 0.1}))
    await client.update_rollout(rollout_id, status="cancelled")
    if ends:
        play.gate.set()
    stats = await running
    assert (stats.finished, stats.failed, stats.handed_back) == (0, 1, 0)
    assert await statuses(client, [rollout_id]) == ["cancelled"]


async def test_a_hub_that_restarts_empty_costs_its_games_only(hub, client, play):
    await enqueue(client, 1)
    worker, running = await begun(client, play, max_concurrent=2)
    await hub.stop()
    await hub.start()
    play.gate.set()
    await all_closed(client, await enqueue(client, 1))
    worker.drain()
    stats = await running
    assert (stats.finished, stats.failed) == (1, 1)


async def test_a_hub_that_stays_away_ends_the_worker(hub, play):
    impatient = connect(hub.url, retry_seconds=0.3)
    running = asyncio.create_task(Worker(impatient, play, "w", heartbeat_seconds=0.1).run())
    await until(lambda: impatient.request("get", "/statistics"))
    await hub.stop()
    with pytest.raises(StoreUnreachable, match="agl store"):
        await running
    await impatient.close()


# --- the real game behind the worker ----------------------------------------------------------------------------------


def werewolf_task(**changes):
    own = dict(seed=1, seating={"wolf": "policy", "good": "scripted"}) | changes
    return game_task(context_tokens=3000, reply_tokens=30, **own).encode()


async def play_rollout(client, policy, task_input, publish=True):
    if publish:
        await client.update_resources(policy.resources_id, policy.encode())
    config = RETRY.model_copy(update={"max_attempts": 1})
    rollout = await enqueue_one(client, task_input, resources_id=policy.resources_id, config=config)
    werewolf = WerewolfPlay(client)
    await Worker(client, werewolf, "w", max_rollouts=1).run()
    await werewolf.close()
    (rollout,) = await client.query_rollouts(rollout_id_in=[rollout.rollout_id])
    return rollout


@pytest.mark.parametrize("task_input", [{"not": "a task"}, werewolf_task(preset="99p")])
async def test_a_task_that_cannot_be_played_fails_with_a_reason(client, policy, task_input):
    rollout = await play_rollout(client, policy, task_input)
    assert rollout.status == "failed" and "UnusableTask" in rollout.attempt.metadata["reason"]


async def test_resources_that_come_late_are_waited_for(client, policy, caplog, monkeypatch):
    monkeypatch.setattr("runners.policy.resources._POLL_SECONDS", 0.1)
    playing = asyncio.create_task(play_rollout(client, policy, werewolf_task(), publish=False))
    await until(lambda: "waiting for resources" in caplog.text)
    await client.update_resources(policy.resources_id, policy.encode())
    assert (await playing).status == "succeeded"


async def test_resources_that_never_come_fail_the_game(client, policy, monkeypatch):
    monkeypatch.setattr("runners.policy.resources._POLL_SECONDS", 0.0)
    rollout = await play_rollout(client, policy, werewolf_task(), publish=False)
    assert rollout.status == "failed"
    assert f"no resources '{policy.resources_id}'" in rollout.attempt.metadata["reason"]


async def test_a_player_that_was_corrected_is_found_by_the_retry(client, policy, monkeypatch):
    """The same version is published again with another player."""
    monkeypatch.setattr("runners.werewolf.agent.WerewolfGames.play", cannot)
    await client.update_resources(policy.resources_id, policy.encode())
    werewolf = WerewolfPlay(client)
    await enqueue_one(client, werewolf_task(), resources_id=policy.resources_id, config=RETRY)
    assert (await Worker(client, werewolf, "w", max_rollouts=1).run()).failed == 1
    monkeypatch.undo()
    corrected = policy.model_copy(update={"model": "corrected"})
    await client.update_resources(policy.resources_id, corrected.encode())
    (rollout,) = await client.query_rollouts()
    assert (await werewolf._resources.of(rollout)).model == "corrected"
    await werewolf.close()


async def test_resources_that_a_resumed_run_publishes_again_are_read_again(client, policy, monkeypatch):
    """The judge and the opponents may change on resume, and the ids repeat."""
    monkeypatch.setattr("runners.policy.resources._FRESH_SECONDS", 0.0)
    await client.update_resources(policy.resources_id, policy.encode())
    rollout = await enqueue_one(client, werewolf_task(), resources_id=policy.resources_id, config=RETRY)
    werewolf = WerewolfPlay(client)

    async def model():
        return (await werewolf._resources.of(rollout)).model

    assert await model() == policy.model
    await client.update_resources(policy.resources_id, policy.model_copy(update={"model": "corrected"}).encode())
    assert await model() == "corrected"
    await werewolf.close()
